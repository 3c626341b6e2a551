// A list of what a server offers beside the one that is open: prompts, or resources.

import { announce, button, fill, h } from './dom.js';
import { count, matcher, plain } from './format.js';
import { longList } from './longlist.js';
import { follow } from './news.js';
import { failed, nothing, waiting } from './pieces.js';
import { go, link } from './route.js';

const ROW = 62;
const PAUSE = 500;

/**
 * A list with its filter beside the one that is open: of each item `words` are searched, `row` is shown, and `opened` is
 * told. `fill(items)` shows them all; `failed(failure, again)` says why that cannot be.
 */
export function catalogue({ id, noun, words, row, opened, reload, reloading }) {
  const many = `${noun}s`;
  const filter = h('input', {
    type: 'search',
    placeholder: `Filter ${many}`,
    'aria-label': `Filter the ${many} of ${id}`,
    autocomplete: 'off',
    on: { input: narrow, keydown: leave },
  });
  const told = h('p', { class: 'told', role: 'status' });
  const list = longList({ label: `${many[0].toUpperCase()}${many.slice(1)} of ${id}`, height: ROW, row, opened });
  const detail = h('div', { class: 'detail' });
  const again = button('', reload, { look: 'quiet icon', picture: 'reload', 'aria-label': reloading });
  const node = h(
    'div',
    { class: 'catalogue' },
    h('div', { class: 'side' }, h('div', { class: 'filter' }, filter, again), told, list.node),
    detail,
  );
  let all = [];

  function narrow() {
    const fits = matcher(filter.value);
    const kept = all.filter((item) => fits(words(item)));
    list.show(kept);
    told.textContent =
      kept.length === all.length
        ? count(all.length, noun)
        : `${kept.length.toLocaleString('en')} of ${count(all.length, noun)}`;
  }

  function leave(event) {
    if (event.key === 'ArrowDown' || event.key === 'Enter') {
      event.preventDefault();
      list.focus();
    } else if (event.key === 'Escape' && filter.value) {
      event.stopPropagation();
      filter.value = '';
      narrow();
    }
  }

  return {
    node,
    list,
    detail,
    wait() {
      told.textContent = 'Loading…';
    },
    fill(items) {
      all = items;
      narrow();
    },
    failed(failure, act) {
      told.textContent = '';
      // On a narrow page only one of the two sides is seen.
      node.classList.add('opened');
      fill(detail, failed(failure, act));
    },
    /** Shows `parts` with the way back on a narrow page. */
    open(part, ...parts) {
      fill(detail, h('a', { class: 'button small back', href: link('server', id, part) }, `‹ All ${many}`), parts);
    },
    choose: (about = '') => nothing(`Choose a ${noun}`, `Arrow keys move through the list, Enter opens.${about}`),
  };
}

/**
 * The view of one kind: `noun` of one, `part` in the address, `lists` of the server that it shows. `load()` is all
 * items, each with a `key`, `label` and `about`; `open(item, signal)` is the node of one.
 */
export function browse({ signal, id, title, noun, part, lists, load, open, empty }) {
  const many = `${noun}s`;
  const { node, list, detail, ...side } = catalogue({
    id,
    noun,
    words: (item) => `${item.label} ${item.key} ${item.about ?? ''}`,
    row: (item) => [
      h('div', { class: 'row-head' }, h('span', { class: 'mono grow' }, plain(item.label, 120)), item.marks),
      h('p', { class: 'row-about' }, plain(String(item.about ?? '').split('\n', 1)[0], 160)),
    ],
    opened: (item) => go('server', id, part, item.key),
    reload: () => read(),
    reloading: `Reload the ${many}`,
  });
  let [all, key, leaving, loaded] = [[], undefined, null, false];
  let [reading, due] = [read(), false];
  follow(id, { changed: (which) => lists.includes(which) && again() }, signal);

  /** Reads once more, however often the server says that something changed meanwhile. */
  async function again() {
    if (due) return;
    due = true;
    await reading.catch(() => {});
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    due = false;
    if (!signal.aborted) reading = read(true);
  }

  async function read(changed = false) {
    side.wait();
    try {
      all = await load(signal);
    } catch (failure) {
      if (signal.aborted) return;
      loaded = false;
      side.failed(failure, () => read());
      return;
    }
    if (signal.aborted) return;
    const first = !loaded;
    loaded = true;
    side.fill(all);
    if (changed) announce(`The ${many} of ${id} changed.`);
    // What is open stays: only one that was waited for, or is no more, is drawn anew.
    if (first || (key !== undefined && !find(key))) draw();
  }

  const find = (wanted) => all.find((item) => item.key === wanted);

  function draw() {
    leaving?.abort();
    leaving = new AbortController();
    signal.addEventListener('abort', () => leaving.abort());
    node.classList.toggle('opened', key !== undefined);
    list.select((item) => item.key === key);
    title(key === undefined ? id : `${plain(find(key)?.label ?? key, 80)} – ${id}`);
    if (key === undefined) {
      fill(
        detail,
        loaded && !all.length
          ? nothing(`No ${many}`, empty)
          : side.choose(),
      );
      return;
    }
    if (!loaded) {
      fill(detail, waiting());
      return;
    }
    const item = find(key);
    const shown = item
      ? open(item, leaving.signal)
      : nothing('Not found', `The server does not list “${plain(key, 120)}” any more.`);
    side.open(part, shown);
  }

  return {
    node,
    moved([, , , wanted]) {
      const before = key;
      key = wanted;
      draw();
      if (before !== undefined && wanted === undefined) list.focus();
      else if (before !== undefined || matchMedia('(max-width: 60rem)').matches)
        detail.querySelector('h2')?.focus({ preventScroll: true });
    },
  };
}
