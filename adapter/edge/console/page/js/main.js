// The page: which view stands at which place.

import { reason } from './api.js';
import { announce, fill, h } from './dom.js';
import { failed, heading, nothing } from './pieces.js';
import { link, place } from './route.js';
import { beginSearch } from './search.js';
import { beginShell, drawRail } from './shell.js';
import { showConfig } from './view_config.js';
import { showExchanges } from './view_exchanges.js';
import { showFiles } from './view_files.js';
import { showServer } from './view_server.js';
import { showServers } from './view_servers.js';
import { showSessions } from './view_sessions.js';
import { me, meet, poll } from './world.js';

const VIEWS = [
  ['servers', 'Overview', 'servers'],
  ['exchanges', 'Exchanges', 'pulse'],
  ['files', 'Files', 'files'],
  ['sessions', 'Sessions', 'people'],
  ['config', 'Configuration', 'config'],
];
const SHOWS = {
  servers: showServers,
  exchanges: showExchanges,
  files: showFiles,
  sessions: showSessions,
  config: showConfig,
  server: showServer,
};

const main = document.getElementById('main');
const shell = beginShell(VIEWS, beginSearch(document.getElementById('search'), VIEWS));
let now = { key: null, leave: null, moved: null };

function title(text) {
  document.title = text ? `${text} – ${me.title}` : me.title;
}

/** Shows the view of the place; within one server's tools only the open tool changes. */
function show({ anew = false, stranger = false } = {}) {
  const parts = me.hosted ? place() : ['server', 'tools', 'tools', place()[3]].filter((part) => part !== undefined);
  const key = parts[0] === 'server' ? `${parts.slice(0, 2).join('/')}/${parts[2] ?? 'tools'}` : parts[0];
  drawRail(VIEWS);
  shell.closeRail();
  if (!anew && key === now.key && now.moved) {
    now.moved(parts);
    return;
  }
  // Who signs in keeps what is filled in already.
  if (stranger && key === now.key && now.signedIn?.()) return;
  now.leave?.abort();
  const leave = new AbortController();
  const before = now.key;
  title(VIEWS.find(([name]) => name === parts[0])?.[1]);
  const view =
    SHOWS[parts[0]]?.({ signal: leave.signal, parts, title }) ??
    h(
      'section',
      { class: 'view' },
      heading('Not found'),
      nothing('There is nothing here', 'This address is not a page of the console.', link('servers')),
    );
  now = { key, leave, moved: view.moved, signedIn: view.signedIn };
  fill(main, view.node ?? view);
  now.moved?.(parts);
  scrollTo(0, 0);
  if (before === null || before === key) return;
  // Who listens to the page is told where they are now, and the keyboard goes on from there.
  main.querySelector('h1')?.focus({ preventScroll: true });
  announce(document.title);
}

addEventListener('hashchange', (event) => show({ anew: !event.isTrusted, ...event.detail }));

try {
  await meet();
  show();
  poll();
} catch (failure) {
  fill(
    main,
    h(
      'section',
      { class: 'view' },
      failed(new Error(reason(failure)), () => location.reload()),
    ),
  );
}
