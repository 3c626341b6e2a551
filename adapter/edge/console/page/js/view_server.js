// One server: its tools beside the one that is open, its pins, and how clients are connected to it.

import { begun } from './again.js';
import { forPeople } from './attach.js';
import { condition, conditionList } from './condition.js';
import { showConnect } from './connect.js';
import { button, fill, h, refill } from './dom.js';
import { count, plain } from './format.js';
import { longList } from './longlist.js';
import { annotationBadges, dot, failed, heading, nothing, titleOf, waiting } from './pieces.js';
import { showPins } from './pins.js';
import { showPrompts } from './prompts.js';
import { showResources } from './resources.js';
import { go, link } from './route.js';
import { facts } from './terms.js';
import { showTool } from './view_tool.js';
import { fleet, me, server as known, tools, watch } from './world.js';

const ROW = 62;
const PARTS = { pins: showPins, connect: showConnect, prompts: showPrompts, resources: showResources };

export function showServer({ signal, parts: [, id, tab = 'tools'], title }) {
  title(id);
  if (fleet() && !known(id)) {
    return h(
      'section',
      { class: 'view' },
      heading('Not found'),
      nothing('There is no such server', `No server here has the id “${plain(id, 80)}”.`, link('servers')),
    );
  }
  const head = h('div', { class: 'server-bar' });
  const part = (name, text) =>
    h('a', { class: 'tab', href: link('server', id, name), 'aria-current': tab === name ? 'page' : null }, text);
  const other = (name, text) => (me.hosted ? part(name, text) : null);
  const pins = other('pins');
  const tabs = h(
    'nav',
    { class: 'tabs', 'aria-label': `Parts of ${id}` },
    part('tools', 'Tools'),
    other('prompts', 'Prompts'),
    other('resources', 'Resources'),
    pins,
    other('connect', 'Connect'),
  );
  watch(() => {
    const server = known(id);
    refill(
      head,
      server ? dot(server) : null,
      h('h1', { tabindex: '-1', 'data-key': 'h1' }, me.hosted ? id : me.title),
      server && me.hosted ? h('span', { class: 'status' }, condition(server).words) : null,
      server ? facts(server, 'bar') : null,
      server && me.hosted && condition(server).look !== 'ok' ? conditionList(server) : null,
    );
    if (pins) fill(pins, 'Pins', changed(server));
  }, signal);
  if (!fleet()) fill(head, h('h1', { tabindex: '-1', 'data-key': 'h1' }, id));
  const body = (Object.hasOwn(PARTS, tab) ? PARTS[tab] : catalogue)({ signal, id, title });
  return {
    node: h('section', { class: `view server-view in-${tab}` }, head, tabs, body.node ?? body),
    moved: body.moved,
    signedIn: body.signedIn,
  };
}

function catalogue({ signal, id, title }) {
  const filter = h('input', {
    type: 'search',
    placeholder: 'Filter tools',
    'aria-label': `Filter the tools of ${id}`,
    autocomplete: 'off',
    on: { input: narrow, keydown: leave },
  });
  const told = h('p', { class: 'told', role: 'status' });
  const list = longList({
    label: `Tools of ${id}`,
    height: ROW,
    row,
    opened: (tool) => go('server', id, 'tools', tool.name),
  });
  const detail = h('div', { class: 'detail' });
  const node = h(
    'div',
    { class: 'catalogue' },
    h(
      'div',
      { class: 'side' },
      h(
        'div',
        { class: 'filter' },
        filter,
        button('', () => load(true), { look: 'quiet icon', picture: 'reload', 'aria-label': 'Reload the catalogue' }),
      ),
      told,
      list.node,
    ),
    detail,
  );
  let [all, open, leaving, form] = [[], null, null, null];

  function row(tool) {
    const claims = tool.annotations ?? {};
    const marks = annotationBadges({ readOnlyHint: claims.readOnlyHint, destructiveHint: claims.destructiveHint });
    const about = forPeople(String(tool.description ?? ''), known(id)?.helper).split('\n', 1)[0];
    const title = titleOf(tool);
    return [
      h(
        'div',
        { class: 'row-head' },
        h('span', { class: 'grow cut' }, h('span', { class: 'mono' }, plain(tool.name, 120)), title && [' ', h('span', { class: 'told' }, title)]),
        marks,
      ),
      h('p', { class: 'row-about' }, plain(about, 160)),
    ];
  }

  load(false);

  async function load(anew) {
    told.textContent = 'Loading…';
    try {
      all = await tools(id, { anew });
      if (signal.aborted) return;
      node.classList.toggle('opened', Boolean(open));
      narrow();
    } catch (failure) {
      told.textContent = '';
      // On a narrow page only one of the two sides is seen.
      node.classList.add('opened');
      fill(
        detail,
        failed(failure, () => load(true)),
      );
    }
  }

  function narrow() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = words.length
      ? all.filter((tool) =>
          words.every((word) => `${tool.name} ${titleOf(tool)} ${tool.description ?? ''}`.toLowerCase().includes(word)),
        )
      : all;
    list.show(kept);
    told.textContent =
      kept.length === all.length
        ? count(all.length, 'tool')
        : `${kept.length.toLocaleString('en')} of ${count(all.length, 'tool')}`;
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

  /** Shows the tool that the address names now, and leaves list and filter as they are. */
  function moved([, , , name], begin = null) {
    if (name === open && leaving) return;
    leaving?.abort();
    leaving = new AbortController();
    signal.addEventListener('abort', () => leaving.abort());
    const before = open;
    open = name;
    node.classList.toggle('opened', name !== undefined);
    list.select((tool) => tool.name === name);
    title(name === undefined ? id : `${plain(name, 80)} – ${id}`);
    if (name === undefined) {
      fill(
        detail,
        nothing('Choose a tool', 'Arrow keys move through the list, Enter opens. Press / to search all servers.'),
      );
      if (before !== null) list.focus();
      return;
    }
    fill(detail, waiting());
    form = null;
    const { signal: left } = leaving;
    Promise.all([showTool({ signal: left, server: id, name }), begun(id, name)]).then(([tool, again]) => {
      if (left.aborted) return;
      form = tool.form;
      const args = begin ?? again?.args;
      if (args) form?.write(args);
      fill(
        detail,
        h('a', { class: 'button small back', href: link('server', id, 'tools') }, '‹ All tools'),
        form ? again?.note : null,
        tool.node,
      );
      if (before !== null || matchMedia('(max-width: 60rem)').matches)
        tool.node.querySelector('h2')?.focus({ preventScroll: true });
    });
  }

  /** The reader is known now, and finds what was filled in before; false where nothing was. */
  function signedIn() {
    if (!form) return false;
    try {
      const begin = form.read();
      leaving.abort();
      leaving = null;
      load(true);
      moved(['server', id, 'tools', open], begin);
      return true;
    } catch {
      return false;
    }
  }

  return { node, moved, signedIn };
}

function changed(server) {
  if (server?.drift) return h('span', { class: 'count bad' }, `${server.drift} changed`);
  return server?.remembered ? h('span', { class: 'count bad' }, 'changed and back') : null;
}
