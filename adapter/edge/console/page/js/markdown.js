// Markdown, from a reader's tokens to elements. HTML in it is shown as the text that it is.

import { h } from './dom.js';
import { longText } from './longtext.js';
import { scrolling } from './pieces.js';
import { plot } from './plot.js';

const LONGEST = 200_000;
const PATIENCE = 3000;
const DEEPEST = 24;

let worker = null;
let asked = 0;
const waiting = new Map();

/** Whether a text looks written in Markdown: a heading, a fence, a table or a list of links and emphasis. */
export function looksLikeMarkdown(text) {
  if (text.length > LONGEST) return false;
  return /^#{1,6} \S|^(`{3,}|~{3,})|^\|.+\|\s*$|^ *[-*] \S.*\n *[-*] \S|\*\*\S[^*\n]*\*\*|\[[^\]\n]+\]\(https?:/m.test(
    text.slice(0, 20_000),
  );
}

/** The node of a Markdown text, filled as soon as it is read; the text itself until then, and where it cannot be. */
export function markdown(text) {
  const node = h('div', { class: 'prose' }, h('p', { class: 'pre' }, text.slice(0, 2000)));
  tokensOf(text).then((tokens) => {
    above.length = 0;
    node.replaceChildren(...(tokens ? blocks(tokens, 0) : [longText(text)]));
  });
  return node;
}

/** Depths of the headings under which the text stands that is drawn now. */
const above = [];

/** The level of a heading below a result's own, without a gap, whichever depths the text skips. */
function level(depth) {
  while (above.length && above.at(-1) >= depth) above.pop();
  above.push(depth);
  return Math.min(6, 3 + above.length);
}

function tokensOf(text) {
  if (text.length > LONGEST) return Promise.resolve(null);
  worker ??= begin();
  const id = (asked += 1);
  return new Promise((resolve) => {
    const late = setTimeout(stop, PATIENCE);
    waiting.set(id, (tokens) => {
      clearTimeout(late);
      resolve(tokens);
    });
    worker.postMessage({ id, text });
  });
}

function begin() {
  const made = new Worker(new URL('markdown_worker.js', import.meta.url), { type: 'module' });
  made.onmessage = ({ data: { id, tokens } }) => {
    waiting.get(id)?.(tokens);
    waiting.delete(id);
  };
  made.onerror = stop;
  return made;
}

/** Ends the reader; whoever waits for it gets the text as it is. */
function stop() {
  worker?.terminate();
  worker = null;
  for (const resolve of waiting.values()) resolve(null);
  waiting.clear();
}

const blocks = (tokens, depth) =>
  depth > DEEPEST ? [raw(tokens)] : tokens.map((token) => block(token, depth)).filter(Boolean);
const raw = (tokens) => tokens.map((token) => token.raw ?? '').join('');

function block(token, depth) {
  const inner = () => inline(token.tokens ?? [], depth + 1);
  switch (token.type) {
    case 'space':
      return null;
    case 'heading':
      return h(`h${level(token.depth)}`, { class: `as-h${token.depth}` }, inner());
    case 'paragraph':
      return h('p', {}, inner());
    case 'text':
      return h('div', {}, token.tokens ? inner() : text(token));
    case 'code':
      return fenced(token);
    case 'blockquote':
      return h('blockquote', {}, blocks(token.tokens, depth + 1));
    case 'hr':
      return h('hr');
    case 'list':
      return listed(token, depth);
    case 'table':
      return tabled(token, depth);
    case 'html':
      return h('p', { class: 'pre' }, token.raw);
    default:
      return token.raw ? h('p', { class: 'pre' }, token.raw) : null;
  }
}

function fenced(token) {
  const language = (token.lang ?? '').trim().split(/\s/)[0].toLowerCase();
  if (language === 'mermaid' || language === 'echarts') return plot(language, token.text);
  return h('pre', { class: 'code', tabindex: '0' }, h('code', {}, token.text));
}

function listed(token, depth) {
  const items = token.items.map((item) =>
    h(
      'li',
      {},
      item.task
        ? h('input', {
            type: 'checkbox',
            checked: item.checked,
            disabled: true,
            'aria-label': item.checked ? 'done' : 'to do',
          })
        : null,
      blocks(
        item.tokens.filter((one) => one.type !== 'checkbox'),
        depth + 1,
      ),
    ),
  );
  return h(
    token.ordered ? 'ol' : 'ul',
    { start: token.ordered && Number.isInteger(token.start) ? token.start : null },
    items,
  );
}

function tabled(token, depth) {
  const cells = (row, tag) =>
    row.map((cell) =>
      h(
        tag,
        { scope: tag === 'th' ? 'col' : null, class: cell.align ? `to-${cell.align}` : null },
        inline(cell.tokens, depth + 1),
      ),
    );
  return scrolling(
    'Table',
    h(
      'table',
      {},
      h('thead', {}, h('tr', {}, cells(token.header, 'th'))),
      h(
        'tbody',
        {},
        token.rows.map((row) => h('tr', {}, cells(row, 'td'))),
      ),
    ),
  );
}

const inline = (tokens, depth) => (depth > DEEPEST ? [raw(tokens)] : tokens.map((token) => span(token, depth)));

function span(token, depth) {
  const inner = () => inline(token.tokens ?? [], depth + 1);
  switch (token.type) {
    case 'strong':
      return h('strong', {}, inner());
    case 'em':
      return h('em', {}, inner());
    case 'del':
      return h('del', {}, inner());
    case 'codespan':
      return h('code', {}, token.text);
    case 'br':
      return h('br');
    case 'link':
      return anchor(token.href, inner());
    // Nothing is fetched from elsewhere, so a picture is a link to it.
    case 'image':
      return anchor(token.href, [`🖼 ${token.text || token.href}`]);
    case 'text':
      return token.tokens ? inner() : text(token);
    case 'escape':
      return token.text;
    default:
      return token.raw ?? '';
  }
}

// The reader escapes for HTML in some tokens; the raw text is what its author wrote.
const text = (token) => entities(token.raw ?? token.text ?? '');

const NAMED = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0' };

const entities = (written) =>
  written.replace(/&(?:(amp|lt|gt|quot|apos|nbsp)|#(\d{1,7}));/g, (whole, name, number) => {
    if (name) return NAMED[name];
    return Number(number) <= 0x10ffff ? String.fromCodePoint(Number(number)) : whole;
  });

/** A link to where http, https and mailto lead; to all else only its text. */
export function anchor(href, children) {
  let url = null;
  try {
    url = new URL(href);
  } catch {
    // A relative link of a result has no page that it would be relative to.
  }
  if (!url || !['http:', 'https:', 'mailto:'].includes(url.protocol)) return h('span', {}, children);
  return h('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer nofollow', title: url.href }, children);
}
