// What a server asks a person while a tool runs: by a form, or by a link to open. The person answers, declines or cancels.

import { reason } from './api.js';
import { faults, formSchema } from './asked.js';
import { answer, call } from './calling.js';
import { Surroundings } from './controls.js';
import { announce, button, fill, h, unique } from './dom.js';
import { members } from './fields.js';
import { plain } from './format.js';
import { steps } from './schema.js';

const LONGEST_MESSAGE = 5000;
const LONGEST_URL = 4000;
const MOST_AT_ONCE = 16;
const MOST_ROUNDS = 20;
const MOST_NOTES = 10;
const LONGEST_NOTE = 500;
const DEEP = 'It asks for what no form here can hold, so you can only decline.';

/**
 * The place where questions of one server stand. `asker` names who asks. `ask(params)` is the answer of the person,
 * `{action, content}`; `note(text)` says something beside; `clear()` takes all away and cancels what is open.
 */
export function questions(server, asker) {
  const node = h('div', { class: 'questions stack' });
  const open = new Set();

  function ask(params) {
    if (open.size >= MOST_AT_ONCE) return Promise.resolve({ action: 'cancel' });
    return new Promise((resolve) => {
      const finish = (result, kept = null) => {
        if (!open.delete(finish)) return;
        const focused = card.contains(document.activeElement);
        if (kept) card.replaceWith(kept);
        else card.remove();
        if (focused) (kept?.querySelector('h3') ?? document.getElementById('main')).focus({ preventScroll: true });
        resolve(result);
      };
      open.add(finish);
      const card = params.mode === 'url' ? linkCard(server, asker, params, finish) : formCard(server, asker, params, finish);
      node.append(card);
      announce(`${asker} asks you something.`);
      card.querySelector('h3').focus();
      card.scrollIntoView({ block: 'nearest' });
    });
  }

  return {
    node,
    ask,
    note(text) {
      const shown = plain(text, LONGEST_NOTE);
      const notes = [...node.children].filter((one) => one.classList.contains('notice'));
      if (notes.length >= MOST_NOTES || notes.some((one) => one.textContent === shown)) return;
      node.append(h('p', { class: 'notice warn', role: 'status' }, shown));
    },
    /** Whatever was opened at `id` is finished, as its server says. */
    complete: (id) => completed(node, id),
    /** Takes open questions away, and leaves what was said. */
    end() {
      for (const finish of [...open]) finish({ action: 'cancel' });
    },
    clear() {
      for (const finish of [...open]) finish({ action: 'cancel' });
      fill(node);
    },
  };
}

/** Says at the links of `id` below `node` that the server is done with them. */
export function completed(node, id) {
  for (const one of node.querySelectorAll('[data-link]'))
    if (one.dataset.link === id) one.textContent = 'The server says that this is done.';
}

function frame(server, asker, params, ...content) {
  const id = unique('question');
  const message = typeof params.message === 'string' ? params.message : '';
  return h(
    'section',
    { class: 'card question', role: 'group', 'aria-labelledby': id },
    h('h3', { class: 'card-title', id, tabindex: '-1' }, `${asker} asks you`),
    h('p', { class: 'pre' }, plain(message, LONGEST_MESSAGE) || 'It gives no reason.'),
    content,
  );
}

const refusals = (finish) => [
  button('Decline', () => finish({ action: 'decline' })),
  button('Cancel', () => finish({ action: 'cancel' }), { look: 'quiet', 'aria-label': 'Close without an answer' }),
];

function formCard(server, asker, params, finish) {
  const schema = formSchema(params.requestedSchema);
  if (!schema) return frame(server, asker, params, h('p', { class: 'notice' }, DEEP), refusalBar(finish));
  const fields = members({ schema, around: new Surroundings(schema, () => {}, null, { person: true }) });
  fields.prefill();
  const wrong = h('p', { class: 'fault', role: 'alert', hidden: true });
  const node = frame(
    server,
    asker,
    params,
    h('div', { class: 'fields' }, fields.nodes),
    h('p', { class: 'hint' }, `Your answer goes to the server ${server}. Do not give it passwords.`),
    wrong,
    h('div', { class: 'run-bar' }, button('Send', send, { look: 'primary', picture: 'check' }), refusals(finish)),
  );
  node.addEventListener('keydown', (event) => {
    // The runner behind takes these for itself.
    if (event.key !== 'Escape' && !(event.key === 'Enter' && (event.ctrlKey || event.metaKey))) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === 'Enter') send();
    else finish({ action: 'cancel' });
  });

  function send() {
    const content = fields.read();
    for (const name of Object.keys(content)) if (content[name] === null) delete content[name];
    fields.clear();
    const found = faults(schema, content);
    wrong.hidden = !found.length;
    wrong.textContent = found.length === 1 ? 'One field is wrong.' : `${found.length} fields are wrong.`;
    let first = null;
    for (const { path, message } of found) {
      const one = fields.find(steps(path));
      one?.blame(message);
      first ??= one;
    }
    first?.focus();
    if (!found.length) finish({ action: 'accept', content });
  }

  return node;
}

const refusalBar = (finish) => h('div', { class: 'run-bar' }, refusals(finish));

function linkCard(server, asker, params, finish) {
  const asked = address(params.url);
  const card = frame(
    server,
    asker,
    params,
    asked ? whole(asked) : h('p', { class: 'notice' }, 'Its address is not one that this page opens.'),
    h(
      'div',
      { class: 'run-bar' },
      asked ? opener(asked, () => finish({ action: 'accept' }, opened(asker, asked, params))) : null,
      refusals(finish),
    ),
  );
  card.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    finish({ action: 'cancel' });
  });
  return card;
}

/** The URL of a web page, or null. */
function address(text) {
  if (typeof text !== 'string' || text.length > LONGEST_URL || !URL.canParse(text)) return null;
  const url = new URL(text);
  return ['http:', 'https:'].includes(url.protocol) ? url : null;
}

/** Where a link leads, in full; names that hide another, and lines that anybody can read, are pointed out. */
function whole(url) {
  const warnings = [
    url.username || url.password ? `The part before @ is no address: the page is at ${url.host}.` : null,
    url.hostname.includes('xn--') ? 'The name of the host has letters that may look like others.' : null,
    url.protocol === 'http:' && !['localhost', '127.0.0.1', '[::1]'].includes(url.hostname)
      ? 'The connection to it is not encrypted.'
      : null,
  ].filter(Boolean);
  return [
    h('p', {}, 'It wants you to open a page at ', h('strong', { class: 'mono' }, url.host), '. The whole address:'),
    h('pre', { class: 'code wrap', tabindex: '0', 'aria-label': 'The whole address' }, url.href),
    warnings.map((text) => h('p', { class: 'notice warn' }, text)),
  ];
}

const opener = (url, act, look = 'button primary') =>
  h(
    'a',
    { class: look, href: url.href, target: '_blank', rel: 'noopener noreferrer', on: { click: act } },
    `Open ${plain(url.host, 100)} in a new tab`,
  );

/** What stays of a link that was opened: its server may take a while. */
function opened(asker, url, { elicitationId }) {
  return h(
    'section',
    { class: 'card question', role: 'group', 'aria-label': `A page at ${url.host}` },
    h('h3', { class: 'card-title', tabindex: '-1' }, `A page at ${plain(url.host, 200)} was opened`),
    h(
      'p',
      { role: 'status', 'data-link': typeof elicitationId === 'string' ? elicitationId : null },
      `${asker} waits until you are done there.`,
    ),
  );
}

/** Links to open before a call is made again (error -32042), and the button that does so. */
export function linksNode(server, asker, { message, elicitations }, again) {
  const links = (Array.isArray(elicitations) ? elicitations : []).slice(0, MOST_AT_ONCE);
  return h(
    'section',
    { class: 'card question stack', role: 'group', 'aria-label': 'Pages to open first' },
    h('h3', { class: 'card-title', tabindex: '-1' }, `${asker} needs something from you first`),
    h('p', { class: 'pre' }, plain(message, LONGEST_MESSAGE)),
    links.map((link) => {
      const url = address(link?.url);
      if (!url) return h('p', { class: 'notice' }, 'One of the addresses is not one that this page opens.');
      return h(
        'div',
        { class: 'stack' },
        h('p', { class: 'pre' }, plain(link.message, LONGEST_MESSAGE)),
        whole(url),
        h('div', {}, opener(url, () => {}, 'button')),
        h('p', { class: 'told', role: 'status', 'data-link': plain(link.elicitationId, 500) }),
      );
    }),
    h('div', { class: 'run-bar' }, button('Run again', again, { look: 'primary', picture: 'play' })),
    h('p', { class: 'hint' }, 'Run the tool again when you are done there.'),
  );
}

/** What became of a request that nobody here can answer, in words. */
function refusedWords(asker, method) {
  if (method === 'sampling/createMessage')
    return `${asker} asked for an answer of a language model (sampling). The console has none and refused; the tool goes on without it, or fails.`;
  if (method === 'roots/list')
    return `${asker} asked for folders on your machine (roots). The console has none and refused; the tool goes on without them, or fails.`;
  if (method === 'elicitation/create')
    return `${asker} asked more than can be shown here, and was refused.`;
  return `${asker} asked for “${plain(method, 60)}”, which the console cannot do, and was refused.`;
}

/**
 * Runs a tool with a person at hand, over as many rounds as it asks for. `{status, body}` as of `call`. Raises as it
 * does, and where the tool asks for what nobody here can give.
 */
export async function callWithPerson(server, name, args, place, { progress, signal }) {
  const asker = `The tool ${plain(name, 80)}`;
  let over = false;
  const lost = (error) => {
    if (!over) place.note(`Your answer did not arrive: ${reason(error)}`);
  };
  const heard = (event, data) => {
    if (event === 'question')
      place
        .ask(data.params ?? {})
        .then((result) => (over || signal.aborted ? null : answer(server, name, data.reply_to, result, signal)))
        .catch(lost);
    else if (event === 'refused') place.note(refusedWords(asker, data.method));
    else if (event === 'complete') place.complete(data.elicitationId);
  };
  try {
    return await rounds(asker, place, signal, (more) => call(server, name, args, { progress, heard, more, signal }));
  } finally {
    over = true;
    place.end();
  }
}

/** What `ask(more)` tells at last, with `more` as the answers to what a modern server asks before it goes on. */
export async function rounds(asker, place, signal, ask) {
  let more = null;
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const came = await ask(more);
    const wanted = came.body?._meta?._input_required;
    if (!wanted || typeof wanted !== 'object') return came;
    more = await inputs(wanted, asker, place, signal);
  }
  throw new Error(`${asker} asked for input ${MOST_ROUNDS} times in a row, and was given up.`);
}

async function inputs({ inputRequests, requestState }, asker, place, signal) {
  const inputResponses = {};
  for (const [key, request] of Object.entries(inputRequests ?? {}).slice(0, MOST_AT_ONCE)) {
    if (request?.method !== 'elicitation/create') {
      const words = refusedWords(asker, String(request?.method));
      place.note(words);
      throw new Error(words);
    }
    const result = await place.ask(request.params ?? {});
    if (signal.aborted) throw new DOMException('cancelled', 'AbortError');
    Object.defineProperty(inputResponses, key, { value: result, enumerable: true });
  }
  return requestState ? { inputResponses, requestState } : { inputResponses };
}
