// A list of any length: only the rows in sight exist (WAI-ARIA APG, "Listbox").

import { fill, h, unique } from './dom.js';

const BEYOND = 6;

/**
 * A listbox named `label` whose rows are `height` pixels high. `row(item)` is what stands in one, `opened(item)` is told
 * of Enter and of a click. `show(items)` replaces the items, `select(test)` marks the chosen one.
 */
export function longList({ label, height, row, opened }) {
  const id = unique('list');
  const space = h('div', { class: 'list-space' });
  const box = h(
    'div',
    { class: 'list', role: 'listbox', tabindex: '0', 'aria-label': label, 'data-key': `list-${label}` },
    space,
  );
  let [items, active, chosen] = [[], -1, null];

  function draw() {
    const first = Math.max(0, Math.floor(box.scrollTop / height) - BEYOND);
    const last = Math.min(items.length, Math.ceil((box.scrollTop + (box.clientHeight || 800)) / height) + BEYOND);
    const rows = [];
    for (let at = first; at < last; at += 1) rows.push(line(at));
    fill(space, rows);
    box.setAttribute('aria-activedescendant', active >= first && active < last ? `${id}-${active}` : '');
  }

  function line(at) {
    const item = items[at];
    const one = h(
      'div',
      {
        class: at === active ? 'row active' : 'row',
        role: 'option',
        id: `${id}-${at}`,
        'aria-selected': chosen?.(item) ? 'true' : 'false',
        'aria-posinset': at + 1,
        'aria-setsize': items.length,
        on: { click: () => pick(at) },
      },
      row(item),
    );
    one.style.top = `${at * height}px`;
    one.style.height = `${height}px`;
    return one;
  }

  function pick(at) {
    active = at;
    opened(items[at]);
    draw();
  }

  function reach(at) {
    active = Math.max(0, Math.min(items.length - 1, at));
    const [top, bottom] = [active * height, (active + 1) * height];
    if (top < box.scrollTop) box.scrollTop = top;
    else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
    draw();
  }

  box.addEventListener('scroll', () => requestAnimationFrame(draw), { passive: true });
  box.addEventListener('keydown', (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || !items.length) return;
    const page = Math.max(1, Math.floor(box.clientHeight / height) - 1);
    const to = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      Home: 0,
      End: items.length - 1,
      PageDown: active + page,
      PageUp: active - page,
    }[event.key];
    if (to !== undefined) reach(to);
    else if ((event.key === 'Enter' || event.key === ' ') && active >= 0) pick(active);
    else return;
    event.preventDefault();
  });
  new ResizeObserver(draw).observe(box);

  return {
    node: box,
    show(next) {
      items = next;
      active = chosen ? items.findIndex(chosen) : -1;
      space.style.height = `${items.length * height}px`;
      box.scrollTop = 0;
      if (active > 0) reach(active);
      draw();
    },
    select(test) {
      chosen = test;
      active = items.findIndex(test);
      if (active >= 0) reach(active);
      else draw();
    },
    focus() {
      box.focus();
      if (active < 0) reach(0);
    },
  };
}
