// One server: its tools beside the one that is open, its pins, and how clients are connected to it.

import { begun } from './again.js';
import { forPeople } from './attach.js';
import { catalogue } from './browse.js';
import { condition, conditionList } from './condition.js';
import { showConnect } from './connect.js';
import { fill, h, refill } from './dom.js';
import { plain } from './format.js';
import { showPrompts, showResources } from './offers.js';
import { annotationBadges, dot, heading, nothing, titleOf, waiting } from './pieces.js';
import { showPins } from './pins.js';
import { go, link } from './route.js';
import { facts } from './terms.js';
import { showTool } from './view_tool.js';
import { fleet, me, server as known, tools, watch } from './world.js';

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
  const body = (Object.hasOwn(PARTS, tab) ? PARTS[tab] : toolCatalogue)({ signal, id, title });
  return {
    node: h('section', { class: `view server-view in-${tab}` }, head, tabs, body.node ?? body),
    moved: body.moved,
    signedIn: body.signedIn,
  };
}

function toolCatalogue({ signal, id, title }) {
  const { node, list, detail, ...side } = catalogue({
    id,
    noun: 'tool',
    words: (tool) => `${tool.name} ${titleOf(tool)} ${tool.description ?? ''}`,
    row,
    opened: (tool) => go('server', id, 'tools', tool.name),
    reload: () => load(true),
    reloading: 'Reload the catalogue',
  });
  let [open, leaving, form] = [null, null, null];

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
    side.wait();
    try {
      const all = await tools(id, { anew });
      if (signal.aborted) return;
      node.classList.toggle('opened', Boolean(open));
      side.fill(all);
    } catch (failure) {
      side.failed(failure, () => load(true));
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
      fill(detail, side.choose(' Press / to search all servers.'));
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
      side.open('tools', form ? again?.note : null, tool.node);
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
