// JSON as a tree that opens on demand, so that a value of any size costs what is looked at.

import { button, fill, h } from './dom.js';
import { count } from './format.js';

const AT_ONCE = 100;
const LONG = 400;

/** The tree of `value`; its first `depth` levels are open. */
export function tree(value, { name = null, depth = 1 } = {}) {
  return h('div', { class: 'tree' }, node(name, value, depth));
}

function node(name, value, depth) {
  const key =
    name === null
      ? null
      : [h('span', { class: 'key' }, String(name).slice(0, LONG)), h('span', { class: 'dim' }, ': ')];
  if (value === null || typeof value !== 'object') return h('div', { class: 'leaf' }, key, scalar(value));
  const entries = Array.isArray(value) ? value.length : Object.keys(value).length;
  const brackets = Array.isArray(value) ? '[]' : '{}';
  if (!entries) return h('div', { class: 'leaf' }, key, h('span', { class: 'dim' }, brackets));
  const inside = h('div', { class: 'inside' });
  const branch = h(
    'details',
    { open: false, on: { toggle: () => branch.open && grow() } },
    h(
      'summary',
      {},
      key,
      h(
        'span',
        { class: 'dim' },
        `${brackets[0]} ${count(entries, Array.isArray(value) ? 'item' : 'member')} ${brackets[1]}`,
      ),
    ),
    inside,
  );
  let grown = false;
  function grow() {
    if (grown) return;
    grown = true;
    more(inside, value, 0, depth - 1);
  }
  if (depth > 0) {
    grow();
    branch.open = true;
  }
  return branch;
}

function more(inside, value, from, depth) {
  const names = Array.isArray(value) ? null : Object.keys(value);
  const total = names ? names.length : value.length;
  const to = Math.min(total, from + AT_ONCE);
  for (let at = from; at < to; at += 1) {
    const name = names ? names[at] : at;
    inside.append(node(name, value[name], depth));
  }
  if (to < total) {
    const next = button(
      `Show ${Math.min(AT_ONCE, total - to)} more of ${count(total - to, 'entry', 'entries')}`,
      () => {
        next.remove();
        more(inside, value, to, 0);
      },
      { look: 'small' },
    );
    inside.append(next);
  }
}

function scalar(value) {
  if (typeof value !== 'string') return h('span', { class: value === null ? 'null' : typeof value }, String(value));
  const shown = h('span', { class: 'string' });
  if (value.length <= LONG) return fill(shown, JSON.stringify(value));
  fill(shown, JSON.stringify(value.slice(0, LONG)).slice(0, -1), '… ');
  let seen = LONG;
  const next = button(
    `${count(value.length - seen, 'more character')}`,
    () => {
      const part = value.slice(seen, (seen += 20_000));
      next.before(part);
      if (seen >= value.length) next.remove();
      else next.lastChild.textContent = count(value.length - seen, 'more character');
    },
    { look: 'small' },
  );
  return h('span', {}, shown, next);
}
