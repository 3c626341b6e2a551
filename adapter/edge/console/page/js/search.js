// The search of the top bar: tools of all servers, servers and views, in one list (WAI-ARIA APG, "Combobox").

import { fill, h, icon, unique } from './dom.js';
import { plain } from './format.js';
import { titleOf } from './pieces.js';
import { go } from './route.js';
import { fleet, me, tools } from './world.js';

const MOST = 12;

/** Fills the search box; `views` are `[name, title]`. Gives back a function that focuses it. */
export function beginSearch(place, views) {
  const id = unique('found');
  const box = h('input', {
    type: 'search',
    id: 'everywhere',
    role: 'combobox',
    'aria-expanded': 'false',
    'aria-controls': id,
    'aria-autocomplete': 'list',
    autocomplete: 'off',
    placeholder: 'Find a tool',
    'aria-label': 'Find a tool, a server or a view',
    'aria-keyshortcuts': '/',
    on: { input: look, focus: look, keydown: keys, blur: () => setTimeout(close, 150) },
  });
  const list = h('div', { class: 'found', role: 'listbox', id, 'aria-label': 'Found', hidden: true });
  let [hits, active, turn] = [[], -1, 0];
  fill(place, icon('search'), box, h('kbd', { 'aria-hidden': 'true' }, '/'), list);

  async function look() {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return close();
    const mine = (turn += 1);
    const catalogues = await Promise.all(
      (fleet() ?? []).map((one) =>
        tools(one.id).then(
          (all) => [one.id, all],
          () => [one.id, []],
        ),
      ),
    );
    if (mine !== turn || document.activeElement !== box) return undefined;
    hits = ranked(words, catalogues);
    active = hits.length ? 0 : -1;
    return draw();
  }

  function ranked(words, catalogues) {
    const found = [];
    const weigh = (text, beside) => {
      const low = text.toLowerCase();
      if (!words.every((word) => low.includes(word) || beside.includes(word))) return 0;
      return low === words.join(' ')
        ? 4
        : low.startsWith(words[0])
          ? 3
          : words.every((word) => low.includes(word))
            ? 2
            : 1;
    };
    for (const [name, title] of views) {
      const weight = weigh(title, '');
      if (weight) found.push({ weight: weight - 0.5, name: title, about: 'view', to: [name] });
    }
    for (const [server, all] of catalogues) {
      const weight = me.hosted ? weigh(server, '') : 0;
      if (weight) found.push({ weight, name: server, about: 'server', to: ['server', server] });
      for (const tool of all) {
        const heavy = weigh(tool.name, `${server} ${titleOf(tool)} ${tool.description ?? ''}`.toLowerCase());
        if (heavy)
          found.push({ weight: heavy, name: tool.name, about: server, to: ['server', server, 'tools', tool.name] });
      }
    }
    return found.sort((one, other) => other.weight - one.weight).slice(0, MOST);
  }

  function draw() {
    fill(
      list,
      hits.length
        ? hits.map((hit, at) =>
            h(
              'div',
              {
                role: 'option',
                id: `${id}-${at}`,
                class: at === active ? 'hit active' : 'hit',
                'aria-selected': at === active ? 'true' : 'false',
                on: { mousedown: (event) => event.preventDefault(), click: () => choose(at) },
              },
              h('span', { class: 'mono grow' }, plain(hit.name, 90)),
              h('span', { class: 'told' }, hit.about),
            ),
          )
        : h('p', { class: 'told' }, 'Nothing found'),
    );
    list.hidden = false;
    box.setAttribute('aria-expanded', 'true');
    if (active >= 0) box.setAttribute('aria-activedescendant', `${id}-${active}`);
    else box.removeAttribute('aria-activedescendant');
  }

  function choose(at) {
    const hit = hits[at];
    if (!hit) return;
    box.value = '';
    close();
    box.blur();
    go(...hit.to);
  }

  function close() {
    turn += 1;
    list.hidden = true;
    box.setAttribute('aria-expanded', 'false');
    box.removeAttribute('aria-activedescendant');
  }

  function keys(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && hits.length && !list.hidden) {
      active = (active + step + hits.length) % hits.length;
      draw();
    } else if (event.key === 'Enter') choose(active);
    else if (event.key === 'Escape') {
      box.value = '';
      close();
      box.blur();
      document.getElementById('main').focus();
    } else return;
    event.preventDefault();
  }

  return () => {
    box.focus();
    box.select();
  };
}
