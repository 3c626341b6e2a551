// Text of any length: the first part is shown, more on demand, in blocks that the browser lays out when they are seen.

import { button, h } from './dom.js';
import { bytes } from './format.js';
import { copyButton, download } from './leaving.js';

const FIRST = 8_000;
const BLOCK = 32_000;
const BLOCKS_AT_ONCE = 8;

/** The node of a text that may have many megabytes. */
export function longText(text, { filename = 'result.txt' } = {}) {
  const body = h('div', { class: 'text', tabindex: '0', role: 'region', 'aria-label': 'Text' });
  if (text.length <= FIRST * 1.5) {
    body.append(block(text));
    return body;
  }
  let shown = cut(text, 0, FIRST);
  body.append(block(text.slice(0, shown)));
  const told = h('span', { class: 'told' });
  const next = button('Show more', more, { look: 'small' });
  const foot = h(
    'div',
    { class: 'text-foot' },
    told,
    next,
    copyButton('Copy all', () => text),
    button('Download', () => download(new Blob([text], { type: 'text/plain' }), filename), {
      look: 'small',
      picture: 'down',
    }),
  );
  say();

  function more() {
    for (let blocks = 0; blocks < BLOCKS_AT_ONCE && shown < text.length; blocks += 1) {
      const end = cut(text, shown, BLOCK);
      body.append(block(text.slice(shown, end)));
      shown = end;
    }
    say();
  }

  function say() {
    next.hidden = shown >= text.length;
    const all = bytes(text.length).replace('B', 'B of text');
    told.textContent = next.hidden
      ? `All ${all}`
      : `${Math.max(1, Math.floor((shown / text.length) * 100))} % of ${all}`;
  }

  return h('div', { class: 'stack' }, body, foot);
}

const block = (part) => h('pre', { class: 'block' }, part);

/** Where a block of about `size` ends: behind a line where there is one near, and never amid a character. */
function cut(text, from, size) {
  if (from + size >= text.length) return text.length;
  const line = text.lastIndexOf('\n', from + size);
  if (line > from + size / 2) return line + 1;
  const half = text.charCodeAt(from + size - 1);
  return half >= 0xd800 && half < 0xdc00 ? from + size - 1 : from + size;
}
