// A list of flat objects as a table; the first rows at once, more on demand, sorted by a click on a head.

import { button, fill, h } from './dom.js';
import { count } from './format.js';
import { scrolling } from './pieces.js';

const AT_ONCE = 100;
const MOST_COLUMNS = 40;
const LONG = 300;
const WIDE = 32;

/** Whether a value reads best as a table: two or more objects of a few members that are no lists or objects. */
export function isTable(value) {
  if (!Array.isArray(value) || value.length < 2) return false;
  const columns = new Set();
  return value.slice(0, 1000).every((row) => {
    if (row === null || typeof row !== 'object' || Array.isArray(row)) return false;
    for (const [name, cell] of Object.entries(row)) {
      columns.add(name);
      if ((cell !== null && typeof cell === 'object') || columns.size > MOST_COLUMNS) return false;
    }
    return columns.size > 0;
  });
}

/** The table of such a list. */
export function table(rows) {
  const columns = [...new Set(rows.slice(0, 1000).flatMap(Object.keys))].slice(0, MOST_COLUMNS);
  const body = h('tbody');
  const foot = h('div', { class: 'text-foot' });
  let [sorted, by, down, shown] = [rows, null, false, 0];
  const heads = columns.map((name) =>
    h(
      'th',
      {
        scope: 'col',
        'aria-sort': 'none',
        class: rows.every((row) => typeof (row[name] ?? 0) === 'number') ? 'number' : null,
      },
      button(name.slice(0, LONG), () => sort(name), { look: 'head' }),
    ),
  );

  function sort(name) {
    [by, down] = [name, by === name ? !down : false];
    sorted = [...rows].sort((one, other) => compare(one[name], other[name]) * (down ? -1 : 1));
    heads.forEach((head, at) =>
      head.setAttribute('aria-sort', columns[at] !== by ? 'none' : down ? 'descending' : 'ascending'),
    );
    shown = 0;
    body.replaceChildren();
    more();
  }

  function more() {
    const end = Math.min(sorted.length, shown + AT_ONCE);
    for (; shown < end; shown += 1)
      body.append(
        h(
          'tr',
          {},
          columns.map((name) => cell(sorted[shown][name])),
        ),
      );
    fill(
      foot,
      h(
        'span',
        { class: 'told' },
        shown < sorted.length ? `${shown} of ${count(sorted.length, 'row')}` : count(sorted.length, 'row'),
      ),
      shown < sorted.length ? button('Show more', more, { look: 'small' }) : null,
    );
  }

  more();
  return h(
    'div',
    { class: 'stack' },
    scrolling('Table', h('table', {}, h('thead', {}, h('tr', {}, heads)), body)),
    foot,
  );
}

function cell(value) {
  const text = value === null || value === undefined ? '' : String(value);
  return h(
    'td',
    { class: typeof value === 'number' ? 'number' : text.length > WIDE ? 'wide' : null },
    text.length > LONG ? `${text.slice(0, LONG)}…` : text,
  );
}

function compare(one, other) {
  if (typeof one === 'number' && typeof other === 'number') return one - other;
  return String(one ?? '').localeCompare(String(other ?? ''), undefined, { numeric: true });
}
