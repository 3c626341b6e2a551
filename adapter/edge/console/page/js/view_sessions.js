// Sessions that are open, and what people have authorized at upstreams: the reader's own, and for operators everybody's.

import { get, post, reason } from './api.js';
import { when } from './condition.js';
import { button, h, refill, toast } from './dom.js';
import { count, moment, plain, relative } from './format.js';
import { badge, every, grid, heading, loading, nothing, waiting } from './pieces.js';
import { eraTerm, eraWords } from './terms.js';
import { chip } from './tip.js';
import { me } from './world.js';

const POLL = 5000;
const MOST = 500;

export function showSessions({ signal }) {
  const place = h('div', {}, waiting());
  const load = () =>
    loading(place, async () => {
      const sessions = await get('-/sessions', { signal });
      refill(
        place,
        sessions.length ? table(sessions) : nothing('No sessions', 'A session begins with a client’s first request.'),
      );
    });
  every(POLL, signal, load);

  return h(
    'section',
    { class: 'view' },
    heading('Sessions', me.operator ? 'All sessions. You see them as an operator.' : 'Your own sessions.'),
    place,
    me.grants ? showGrants({ signal }) : null,
  );
}

function table(sessions) {
  const era = chip('Era', { term: `${eraTerm('legacy')}. Clients of later eras have none.`, key: 'head-era' });
  const heads = ['Server', 'Client', 'Principal', 'Scope', era, 'Begun', 'Last seen', 'In flight'];
  return h(
    'div',
    { class: 'card flush' },
    grid(
      'Sessions',
      heads,
      h(
        'tbody',
        {},
        sessions
          .slice(0, MOST)
          .map((one) =>
            h(
              'tr',
              {},
              h('td', {}, plain(one.server, 60)),
              h('td', {}, client(one.client)),
              h('td', {}, plain(one.principal, 60), one.own ? badge('yours', 'accent') : null),
              h('td', { class: 'mono', title: one.scope }, String(one.scope).slice(0, 12)),
              h('td', {}, eraWords(one.era)),
              h('td', {}, when(one.created)),
              h('td', {}, when(one.last_seen)),
              h('td', { class: 'number' }, one.in_flight),
            ),
          ),
      ),
    ),
    sessions.length > MOST
      ? h('p', { class: 'notice' }, `${count(sessions.length - MOST, 'more session')} not shown.`)
      : null,
  );
}

/** A client as it names itself; nobody checks that. */
function client(told) {
  if (!told) return h('span', { class: 'told' }, 'not named');
  return [plain(told.name, 80) || 'no name', ' ', h('span', { class: 'told' }, plain(told.version, 80))];
}

function showGrants({ signal }) {
  const place = h('div', {}, waiting());
  const load = () =>
    loading(place, async () => {
      const grants = await get('-/grants', { signal });
      refill(
        place,
        grants.length
          ? grantsTable(grants, revoke)
          : nothing('No grants', 'One begins when a person opens the link that a call was answered with.'),
      );
    });
  every(POLL, signal, load);

  async function revoke({ server, id }) {
    try {
      const { revoked } = await post(`-/grants/${encodeURIComponent(server)}/${encodeURIComponent(id)}/revoke`, {});
      toast(revoked ? 'Revoked, also at its issuer.' : 'Forgotten. Its issuer did not say that it is revoked there.');
    } catch (failure) {
      toast(reason(failure), { bad: true });
    }
    load();
  }

  return h('section', { class: 'view' }, h('h2', {}, 'Grants'), place);
}

function grantsTable(grants, revoke) {
  return h(
    'div',
    { class: 'card flush' },
    grid(
      'Grants',
      ['Server', 'Principal', 'Issuer', 'Scope', 'Since', ''],
      h(
        'tbody',
        {},
        grants.slice(0, MOST).map((one) =>
          h(
            'tr',
            {},
            h('td', {}, one.server),
            h('td', {}, plain(one.principal ?? 'cannot be opened', 60)),
            h('td', {}, plain(one.issuer ?? '', 60)),
            h('td', {}, plain(one.scope ?? '', 60)),
            h('td', { title: one.obtained ? moment(one.obtained) : null }, one.obtained ? relative(one.obtained) : ''),
            h('td', {}, button('Revoke', () => revoke(one), { look: 'small' })),
          ),
        ),
      ),
    ),
  );
}
