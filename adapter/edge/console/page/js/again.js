// Running a call again: what this page has sent itself, in memory alone, and the form that is opened with it.

import { get } from './api.js';
import { h } from './dom.js';
import { plain } from './format.js';
import { when } from './condition.js';
import { go } from './route.js';

const MOST = 50;
const LARGEST = 256 * 1024;
const DEEPEST = 40;
const MOST_TEXTS = 2000;
const SCHEMES = ['upload://', 'artifact://'];

const sent = new Map();
let waiting = null;

/** An id for a call that begins now. Its arguments are kept until the page is closed or its reader changes. */
export function remember(args) {
  const id = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  const text = JSON.stringify(args);
  if (text.length > LARGEST) return id;
  sent.set(id, text);
  let size = [...sent.values()].reduce((total, each) => total + each.length, 0);
  for (const [oldest, old] of sent) {
    if (sent.size <= MOST && size <= 4 * LARGEST) break;
    sent.delete(oldest);
    size -= old.length;
  }
  return id;
}

/** Forgets all arguments: another reader must not find them. */
export function forget() {
  sent.clear();
  waiting = null;
}

/** Whether an exchange can be run again: a call of a tool that was the reader's own. */
export const isRepeatable = (exchange) => exchange.own === true && typeof exchange.tool === 'string';

/** Opens the form of the exchange's tool, with its arguments where they are kept. */
export function runAgain(exchange) {
  const text = exchange.call ? sent.get(exchange.call) : undefined;
  waiting = { server: exchange.server, tool: exchange.tool, at: exchange.at, entrance: exchange.entrance, text };
  go('server', exchange.server, 'tools', exchange.tool);
}

/** `{args, note}` for the form of this tool, once; null where nobody has asked for it. `args` is null if not kept. */
export async function begun(server, tool) {
  if (waiting === null) return null;
  const { text, ...of } = waiting;
  waiting = null;
  if (of.server !== server || of.tool !== tool) return null;
  const args = text === undefined ? null : JSON.parse(text);
  const gone = args === null ? [] : await lost(args);
  return { args, note: noteOf(of, args, gone) };
}

function noteOf({ at, entrance }, args, gone) {
  const reason =
    args !== null
      ? 'Its arguments are filled in. Nothing runs before you choose Run.'
      : entrance === 'http'
        ? 'Its arguments are not kept any more: this page remembers those of its own last calls, until it is closed.'
        : 'Its arguments are not known: the adapter keeps none of the calls of clients.';
  return h(
    'div',
    { class: 'notice again', role: 'status' },
    h('p', {}, h('strong', {}, 'Run again'), ' – the call that ended ', when(at), '. ', reason),
    gone.length
      ? h(
          'ul',
          {},
          gone.map(({ path, text }) =>
            h('li', {}, 'The file of ', h('code', {}, plain(path, 120)), ' is gone: ', h('code', {}, plain(text, 120)), '. Attach it again.'),
          ),
        )
      : null,
  );
}

/** The handles among the arguments whose files the adapter does not keep any more. */
async function lost(args) {
  const texts = [...handles(args)];
  if (!texts.length) return [];
  try {
    const { scopes = [], schemes = SCHEMES } = await get('-/files');
    const kept = new Set(scopes.flatMap(({ files = [] }) => files.map(({ uri }) => uri)));
    return texts.filter(({ text }) => schemes.some((scheme) => text.startsWith(scheme)) && !kept.has(text));
  } catch {
    // Whether they are there nobody can tell; the call will.
    return [];
  }
}

function* handles(args) {
  const stack = [[args, [], 0]];
  let seen = 0;
  while (stack.length && seen < MOST_TEXTS) {
    const [value, path, depth] = stack.pop();
    if (typeof value === 'string') {
      seen += 1;
      if (/^[a-z][a-z0-9+.-]*:\/\//i.test(value)) yield { path: path.join('.'), text: value };
    } else if (value !== null && typeof value === 'object' && depth < DEEPEST) {
      for (const [name, one] of Object.entries(value).reverse()) stack.push([one, [...path, name], depth + 1]);
    }
  }
}
