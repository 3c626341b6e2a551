// How a server is, in words: whether callers are served, the reason if not, the server's own words, and since when.

import { h } from './dom.js';
import { instant, moment, plain, relative } from './format.js';
import { link } from './route.js';

const LONGEST = 300;
const SAME = 1;
const LOOKS = ['bad', 'warn', 'ok'];

const WORDS = {
  unreachable: 'not reachable',
  starting: 'starting',
  breaker: 'refuses calls',
  asks_oauth: 'asks people to sign in',
  refuses_adapter: 'refuses the adapter',
  refuses_callers: 'refuses callers',
  drift_blocks: 'blocks changed tools',
};

/** `look` (ok, warn, bad) and `words` of a server. */
export function condition(server) {
  const [first] = (server.condition?.notes ?? []).filter(({ kind }) => WORDS[kind]);
  const look = server.condition?.look ?? { ok: 'ok', starting: 'warn' }[server.status] ?? 'bad';
  if (first) return { look, words: WORDS[first.kind] };
  if (look === 'ok') return { look, words: server.checked === false ? 'not checked' : 'reachable' };
  return { look, words: look === 'warn' ? 'starting' : 'not reachable' };
}

/** Servers with those in front that need somebody, and the others in their order. */
export const illFirst = (servers) =>
  [...servers].sort((one, other) => LOOKS.indexOf(condition(one).look) - LOOKS.indexOf(condition(other).look));

/** A moment as it is said, with the date for who asks for it. */
export function when(at) {
  const known = instant(at);
  const date = known === null ? null : new Date(known * 1000);
  if (date === null || Number.isNaN(date.getTime())) return '–';
  return h('time', { datetime: date.toISOString(), title: moment(known) }, relative(known));
}

const said = (text) => (text ? h('q', { class: 'said' }, plain(text, LONGEST)) : null);

const SENTENCES = {
  unreachable: ({ at, text }) => ['No answer', at ? [' since ', when(at)] : null, text ? ': ' : '.', said(text)],
  starting: () => ['It has not answered yet; it is given time to start.'],
  breaker: ({ text }) => [
    text === 'half_open'
      ? 'Calls are refused while the adapter tests whether it is back.'
      : 'Calls are refused at once until it answers again.',
  ],
  asks_oauth: ({ at, text }) => [
    'It wants callers to sign in (OAuth). Set ',
    h('code', {}, 'upstream.auth.type: authorization_code'),
    at ? [', then each is asked once. Since ', when(at)] : null,
    text ? ': ' : '.',
    said(text),
  ],
  refuses_adapter: ({ at, text }) => [
    'It does not accept the adapter’s own credentials',
    at ? [', ', when(at)] : null,
    text ? ': ' : '.',
    said(text),
  ],
  refuses_callers: ({ at, text }) => ['It refused a caller ', when(at), text ? ': ' : '.', said(text)],
  drift_blocks: ({ at }, server) => [
    'Tools changed ',
    at ? when(at) : null,
    '. Calls to them are refused until an operator accepts them: ',
    toPins(server),
  ],
  drift: ({ at }, server) => ['Tools changed ', at ? when(at) : null, '. Clients are warned: ', toPins(server)],
};

const toPins = (server) =>
  h(
    'a',
    { href: link('server', server.id, 'pins'), 'data-key': `drift-${server.id}`, 'aria-label': `Changes of ${server.id}` },
    'changes',
  );

/** Whether a note has said already what the last error is. */
const saysIt = ({ kind, at }, error) =>
  (kind === 'unreachable' && error.by === 'check') ||
  (kind === 'refuses_callers' && error.by === 'call' && Math.abs(error.at - at) < SAME);

/** The facts behind the condition as a list; null where there is nothing to say. */
export function conditionList(server) {
  const notes = (server.condition?.notes ?? []).filter(({ kind }) => SENTENCES[kind]);
  const error = server.condition?.last_error;
  const told = error && notes.some((note) => saysIt(note, error));
  const lines = notes.map((note) => [note.kind, SENTENCES[note.kind](note, server)]);
  if (server.met && !server.drift)
    lines.push(['drift', ['Tools changed ', when(server.met.since), ' and changed back: ', toPins(server)]]);
  if (error && !told)
    lines.push(['error', [error.by === 'check' ? 'Last failed check ' : 'Last failed call ', when(error.at), error.text ? ': ' : '.', said(error.text)]]);
  if (!lines.length) return null;
  return h(
    'ul',
    { class: 'notes', 'aria-label': `State of ${server.id}` },
    lines.map(([kind, parts]) => h('li', { class: `note-line ${kind}` }, parts)),
  );
}
