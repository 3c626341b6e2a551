// One request about a prompt or a resource, with a person at hand: what the server asks first is asked here.

import { Refused, post, reason } from './api.js';
import { announce, button, fill, h } from './dom.js';
import { completed, linksNode, questions, rounds } from './elicitation.js';
import { follow } from './news.js';

/**
 * A button `label` that posts `body()` to `path` and shows `shown(answer)`; `body()` is null where something is missing. Enter in the `form` does the same.
 */
export function requester({ server, path, asker, label, picture, body, shown, form, signal }) {
  const place = h('div', { class: 'outcome' });
  const asked = questions(server, asker);
  const act = button(label, start, { look: 'primary', picture });

  async function start() {
    const given = body();
    if (given === null || act.disabled) return;
    act.disabled = true;
    asked.clear();
    fill(place, h('p', { class: 'told', role: 'status' }, 'Reading…'));
    try {
      const { body: told } = await rounds(asker, asked, signal, async (more) => ({
        body: await post(`${encodeURIComponent(server)}/${path}`, { ...given, ...more }, { signal }),
      }));
      const answer = told ?? {};
      if (signal.aborted) return;
      const links = answer._meta?._elicitations;
      if (links) {
        const node = linksNode(server, asker, links, start);
        fill(place, node);
        follow(server, { complete: (id) => completed(node, id) }, signal, () => node.isConnected);
      } else {
        fill(place, h('h3', { class: 'unseen' }, 'Result'), shown(answer));
        announce('It is here.');
      }
    } catch (failure) {
      if (!signal.aborted) fill(place, h('div', { class: 'notice bad', role: 'alert' }, h('p', {}, why(failure))));
    } finally {
      asked.end();
      act.disabled = false;
    }
  }

  form?.node.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    start();
  });
  return { node: h('div', { class: 'runner' }, h('div', { class: 'run-bar' }, act), asked.node, place) };
}

const why = (failure) => {
  if (failure instanceof Refused && failure.status === 401) return 'Enter your bearer token above (the key symbol).';
  if (failure instanceof Refused && failure.status === 403)
    return `${failure.message} Its operator can set console.allow_execute: true.`;
  return reason(failure);
};
