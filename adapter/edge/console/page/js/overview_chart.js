// Calls and errors of the last hour, minute by minute: a small picture, and a table that says the same.

import { get } from './api.js';
import { fill, h, s } from './dom.js';
import { clock, count, plain } from './format.js';
import { every, grid } from './pieces.js';

const POLL = 15_000;
const MINUTES = 60;
const [WIDTH, HEIGHT, PAD] = [720, 120, 4];
const FOOT = 2;

/** The card with the picture; it stays away where the adapter tells nothing of this. */
export function showActivity({ signal }) {
  const picture = h('div', { class: 'activity-picture' });
  const told = h('p', { class: 'told' });
  const body = h('tbody');
  const table = h(
    'details',
    { class: 'activity-table' },
    h('summary', {}, 'As a table'),
    grid('Calls and errors by minute', ['Minute', 'Tool calls', 'Other requests', 'Errors'], body),
  );
  const node = h(
    'section',
    { class: 'card activity', 'aria-labelledby': 'activity-title', hidden: true },
    h('h2', { id: 'activity-title' }, 'Calls and errors'),
    told,
    picture,
    legend(),
    table,
  );
  every(POLL, signal, load);

  async function load() {
    try {
      const activity = await get('-/activity', { signal });
      const minutes = rows(activity.minutes);
      told.textContent = [headline(minutes, activity), whose(activity)].join(' ');
      fill(picture, chart(minutes));
      fill(body, minutes.toReversed().filter(busy).map(line));
      if (!body.children.length) fill(body, h('tr', {}, h('td', { colspan: 4 }, 'Nothing in the last hour.')));
      node.hidden = false;
    } catch {
      // What the servers' own state says of the failure stands below.
      node.hidden = true;
    }
  }

  return node;
}

/** The minutes that can be drawn: `[unix, calls, others, errors]`, numbers all. */
function rows(minutes) {
  const found = Array.isArray(minutes) ? minutes : [];
  return found.filter((row) => Array.isArray(row) && row.every(Number.isFinite)).slice(-MINUTES);
}

const sum = (minutes, place) => minutes.reduce((total, row) => total + row[place], 0);
const busy = ([, calls, others, errors]) => calls + others + errors > 0;

function headline(minutes, { since }) {
  const short = Number.isFinite(since) && minutes.length && since > minutes[0][0];
  return `${short ? `Since ${clock(since)}` : 'In the last hour'}: ${count(sum(minutes, 1), 'tool call')}, ${count(sum(minutes, 2), 'other request')}, ${count(sum(minutes, 3), 'error')}.`;
}

/** Whose calls these are: all there is, or what is missing. */
function whose({ whose: who, replica, heard = [], silent = [] }) {
  const own = who === 'own' ? 'Your own calls, as far as they are kept' : null;
  if (!replica) return own ? `${own}.` : '';
  if (own) return `${own} by the replica ${plain(replica, 40)}.`;
  if (!silent.length) return heard.length ? `Of all ${heard.length + 1} replicas.` : `Of the replica ${plain(replica, 40)}.`;
  const missing = silent.slice(0, 3).map((id) => plain(id, 40)).join(', ');
  return `Of ${heard.length + 1} of ${heard.length + 1 + silent.length} replicas, ${plain(replica, 40)} among them; without ${missing}${silent.length > 3 ? ' …' : ''}.`;
}

function legend() {
  const entry = (look, text) => h('li', {}, h('span', { class: `key-mark ${look}`, 'aria-hidden': 'true' }), text);
  return h('ul', { class: 'legend' }, entry('calls', 'tool calls'), entry('others', 'other requests'), entry('errors', 'errors'));
}

/** Bars of calls with other requests on top, and errors as a mark of their own below the line of zero. */
function chart(minutes) {
  const highest = Math.max(1, ...minutes.map(([, calls, others]) => calls + others));
  const worst = Math.max(1, ...minutes.map((row) => row[3]));
  const zero = HEIGHT * 0.76;
  const step = (WIDTH - 2 * PAD) / MINUTES;
  const up = (number) => (number / highest) * (zero - PAD);
  const down = (number) => (number ? Math.max(3, (number / worst) * (HEIGHT - zero - FOOT - PAD)) : 0);
  const bar = (at, top, height, look) =>
    height > 0
      ? s('rect', { x: (PAD + at * step + 1).toFixed(1), y: top.toFixed(1), width: (step - 2).toFixed(1), height: height.toFixed(1), class: look })
      : null;
  const first = MINUTES - minutes.length;
  const label = `Tool calls, other requests and errors in each of the last ${minutes.length} minutes: at most ${highest} in a minute, ${count(sum(minutes, 3), 'error')}.`;
  return s(
    'svg',
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: 'activity-chart', role: 'img', 'aria-label': label, preserveAspectRatio: 'none' },
    minutes.map(([, calls, others, errors], place) => {
      const at = first + place;
      return [
        bar(at, zero - up(calls), up(calls), 'calls'),
        bar(at, zero - up(calls + others), up(others), 'others'),
        bar(at, zero + FOOT, down(errors), 'errors'),
      ];
    }),
    s('line', { x1: PAD, x2: WIDTH - PAD, y1: zero, y2: zero, class: 'axis', 'vector-effect': 'non-scaling-stroke' }),
  );
}

const line = ([minute, calls, others, errors]) =>
  h(
    'tr',
    {},
    h('th', { scope: 'row' }, clock(minute).slice(0, 5)),
    [calls, others, errors].map((number) => h('td', { class: 'number' }, number.toLocaleString('en'))),
  );
