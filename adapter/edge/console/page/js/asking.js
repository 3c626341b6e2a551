// One request about a prompt or a resource, with a person at hand: what the server asks first is asked here.

import { Refused, post, reason } from './api.js';
import { announce, button, fill, h } from './dom.js';
import { completed, inputs, linksNode, questions } from './elicitation.js';
import { follow } from './news.js';

const MOST_ROUNDS = 20;

/**
 * A button `label` that posts `body()` to `path` and shows `shown(answer)`; `body()` is null where something is missing.
 */
export function requester({ server, path, asker, label, picture, body, shown, signal }) {
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
      const answer = await rounds(given);
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

  async function rounds(given) {
    let more = {};
    for (let round = 0; round < MOST_ROUNDS; round += 1) {
      const answer = await post(`${encodeURIComponent(server)}/${path}`, { ...given, ...more }, { signal });
      const wanted = answer?._meta?._input_required;
      if (!wanted || typeof wanted !== 'object') return answer ?? {};
      more = await inputs(wanted, asker, asked, signal);
    }
    throw new Error(`${asker} asked for input ${MOST_ROUNDS} times in a row, and the request was given up.`);
  }

  return { node: h('div', { class: 'runner' }, h('div', { class: 'run-bar' }, act), asked.node, place), start };
}

const why = (failure) => {
  if (failure instanceof Refused && failure.status === 401) return 'Enter your bearer token above (the key symbol).';
  if (failure instanceof Refused && failure.status === 403)
    return `${failure.message} Its operator can set console.allow_execute: true.`;
  return reason(failure);
};
