// The servers: how each one is, and how it was.

import { h, refill } from './dom.js';
import { count, duration } from './format.js';
import { badge, dot, failed, heading, nothing, waiting } from './pieces.js';
import { link } from './route.js';
import { spark } from './spark.js';
import { fleet, refresh, tools, trouble, watch } from './world.js';

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
  return h('section', { class: 'view' }, head, place);
}

function summary(servers) {
  const well = servers.filter((one) => one.status === 'ok').length;
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
      dot(server.status),
      h(
        'div',
        { class: 'grow' },
        h('h2', { id: title }, h('a', { href: link('server', server.id), 'data-key': `card-${server.id}` }, server.id)),
        h('p', { class: 'told mono' }, server.mount ?? ''),
      ),
      h('span', { class: 'status' }, server.status),
    ),
    h('div', { class: 'badges' }, facts(server)),
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
          ? h('a', { class: 'bad', href: link('server', server.id, 'pins') }, server.drift ? `${server.drift}` : 'and back')
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

/** Era, transport and breaker of a server, as badges. */
export function facts(server) {
  const breaker = server.breaker?.state ?? server.breaker;
  return [
    server.era ? badge(server.era, '', 'Protocol era of the server') : null,
    server.transport ? badge(server.transport, '', 'Transport to the server') : null,
    breaker
      ? badge(
          `breaker ${breaker}`,
          breaker === 'closed' ? 'ok' : breaker === 'open' ? 'bad' : 'warn',
          'closed: calls are forwarded; open: calls are refused at once',
        )
      : null,
    server.uploads ? badge('takes files', 'accent') : null,
  ];
}

const fact = (name, value) => h('div', {}, h('dt', {}, name), h('dd', {}, value));
