// The servers: how each one is, and how it was.

import { get } from './api.js';
import { condition, conditionList, when } from './condition.js';
import { h, refill } from './dom.js';
import { count, duration, plain } from './format.js';
import { showActivity } from './overview_chart.js';
import { dot, every, failed, heading, nothing, waiting } from './pieces.js';
import { link } from './route.js';
import { spark } from './spark.js';
import { facts } from './terms.js';
import { fleet, refresh, tools, trouble, watch } from './world.js';

const POLL = 15_000;

export function showServers({ signal }) {
  const place = h('div', { class: 'cards' }, waiting());
  const about = h('p', { class: 'about' });
  const asked = new Set();
  watch(() => {
    const servers = fleet();
    servers?.forEach(look);
    if (trouble()) refill(place, failed(trouble(), refresh));
    else if (!servers.length) refill(place, nothing('No servers yet', 'The settings have no entry under servers.'));
    else refill(place, servers.map(card));
    about.textContent = servers?.length && !trouble() ? summary(servers) : '';
  }, signal);

  /** Nobody knows the tools of a server before somebody has listed them. */
  function look({ id, status, tools: known }) {
    if (known !== null || status !== 'ok' || asked.has(id)) return;
    asked.add(id);
    tools(id).then(refresh, () => {});
  }

  const head = heading('Servers');
  head.firstChild.append(about);
  return h('section', { class: 'view' }, head, showActivity({ signal }), showMounts({ signal }), place);
}

/** The merged mounts, if there are any. */
function showMounts({ signal }) {
  const node = h('div', { class: 'cards' });
  every(POLL, signal, async () => refill(node, (await get('-/mounts', { signal }).catch(() => [])).map(mountCard)));
  return node;
}

const mountCard = ({ id, path, servers, notes }) =>
  h(
    'article',
    { class: 'card stack mount' },
    h('h2', {}, h('a', { href: link('server', servers[0], 'connect'), 'data-key': `card-mount-${id}` }, `Mount ${id}`)),
    h('p', { class: 'told mono' }, path),
    h('p', {}, `Servers: ${servers.join(', ')}`),
    notes.slice(0, 8).map((note) => h('p', { class: 'notice' }, plain(note, 300))),
  );

function summary(servers) {
  const well = servers.filter((one) => condition(one).look === 'ok').length;
  const tools = servers.reduce((sum, one) => sum + (one.tools ?? 0), 0);
  const drifted = servers.filter((one) => one.drift > 0 || one.remembered).length;
  const parts = [
    well === servers.length ? `${count(well, 'server')}, ${well === 1 ? '' : 'all '}well` : `${well} of ${servers.length} are well`,
    count(tools, 'tool'),
  ];
  if (drifted) parts.push(`${count(drifted, 'server')} changed ${drifted === 1 ? 'its' : 'their'} tools`);
  return parts.join(' · ');
}

function card(server) {
  const title = `server-${server.id}`;
  return h(
    'article',
    { class: 'card server', 'aria-labelledby': title },
    h(
      'div',
      { class: 'server-head' },
      dot(server),
      h(
        'div',
        { class: 'grow' },
        h('h2', { id: title }, h('a', { href: link('server', server.id), 'data-key': `card-${server.id}` }, server.id)),
        h('p', { class: 'told mono' }, server.mount ?? ''),
      ),
      h('span', { class: `status ${condition(server).look}`, 'aria-hidden': 'true' }, condition(server).words),
    ),
    facts(server, 'card'),
    conditionList(server),
    h(
      'div',
      { class: 'latency' },
      h('div', {}, h('p', { class: 'figure' }, duration(server.latency_ms)), h('p', { class: 'told' }, 'latency')),
      spark(server.history ?? []),
    ),
    h(
      'dl',
      { class: 'facts' },
      fact('Tools', server.tools ?? '–'),
      fact(
        'Changed',
        server.drift || server.remembered
          ? [
              h('a', { class: 'bad', href: link('server', server.id, 'pins') }, server.drift ? `${server.drift}` : 'and back'),
              server.met ? h('span', { class: 'told since' }, when(server.met.since)) : null,
            ]
          : 'none',
      ),
      fact('Missing', server.missing?.length ? h('span', { class: 'bad' }, `${server.missing.length}`) : 'none'),
    ),
    server.missing?.length
      ? h(
          'p',
          { class: 'notice' },
          `Configured, but not listed: ${server.missing.slice(0, 8).join(', ')}${server.missing.length > 8 ? ' …' : ''}`,
        )
      : null,
  );
}

const fact = (name, value) => h('div', {}, h('dt', {}, name), h('dd', {}, value));
