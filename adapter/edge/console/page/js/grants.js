// What people have authorized at upstreams: the reader's own grants, and for operators everybody's; and their end.

import { get, post, reason } from './api.js';
import { button, h, refill, toast } from './dom.js';
import { moment, plain, relative } from './format.js';
import { every, grid, loading, nothing, waiting } from './pieces.js';

const POLL = 5000;
const MOST = 500;

export function showGrants({ signal }) {
  const place = h('div', {}, waiting());
  const load = () =>
    loading(place, async () => {
      const grants = await get('-/grants', { signal });
      refill(
        place,
        grants.length
          ? table(grants, revoke)
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

function table(grants, revoke) {
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
