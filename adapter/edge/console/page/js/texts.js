// A form of texts, as arguments of prompts and variables of templates are: with the values that the server suggests.

import { Refused, post } from './api.js';
import { h, unique } from './dom.js';
import { plain } from './format.js';

const PAUSE = 200;
const MOST = 100;
const LONGEST = 300;
const silent = new Set();

/**
 * Fields for `[{name, required, title, description}]` of a server. `ref` says of whose argument suggestions are asked.
 * `read()` is the texts by name, without empty ones; `blame()` is whether one that is needed is missing, and shows it.
 */
export function textForm(server, ref, wanted, signal) {
  const fields = wanted.map((one) => textField(server, ref, one, () => read(), signal));

  function read() {
    const values = {};
    for (const one of fields)
      if (one.box.value !== '') Object.defineProperty(values, one.name, { value: one.box.value, enumerable: true, configurable: true });
    return values;
  }

  return {
    node: h('div', { class: 'fields' }, fields.map((one) => one.node)),
    read,
    blame() {
      const empty = fields.filter((one) => one.blame());
      empty[0]?.box.focus();
      return empty.length > 0;
    },
  };
}

function textField(server, ref, { name, required, title, description }, read, signal) {
  const [hint, fault, offers] = [unique('hint'), unique('fault'), h('datalist', { id: unique('offers') })];
  const box = h('input', {
    id: unique(),
    autocomplete: 'off',
    spellcheck: 'false',
    list: offers.id,
    'aria-describedby': `${hint} ${fault}`,
    'aria-required': required ? 'true' : null,
    on: { input: later, focus: later },
  });
  const wrong = h('p', { class: 'fault', id: fault, hidden: true });
  let timer = null;
  let asking = null;

  function later() {
    clearTimeout(timer);
    if (!silent.has(server)) timer = setTimeout(suggest, PAUSE);
  }

  async function suggest() {
    asking?.abort();
    asking = new AbortController();
    const given = read();
    delete given[name];
    try {
      const body = { ref, argument: { name, value: box.value }, arguments: given };
      const told = await post(`${encodeURIComponent(server)}/complete`, body, { signal: asking.signal });
      const values = Array.isArray(told?.completion?.values) ? told.completion.values : [];
      offers.replaceChildren(
        ...values
          .filter((value) => typeof value === 'string' && value.length <= LONGEST)
          .slice(0, MOST)
          .map((value) => h('option', { value })),
      );
    } catch (failure) {
      // Servers without suggestions say so once.
      if (failure instanceof Refused && [403, 404].includes(failure.status)) silent.add(server);
    }
  }

  signal.addEventListener('abort', () => {
    clearTimeout(timer);
    asking?.abort();
  });
  return {
    name,
    box,
    node: h(
      'div',
      { class: 'field' },
      h(
        'div',
        { class: 'field-head' },
        h('label', { for: box.id, class: 'name' }, plain(title || name, 200)),
        required ? h('span', { class: 'mark required' }, 'required') : null,
      ),
      h('p', { class: 'hint', id: hint }, typeof description === 'string' ? description.slice(0, 2000) : null),
      h('div', { class: 'control' }, box, offers),
      wrong,
    ),
    blame() {
      const empty = required && box.value === '';
      wrong.hidden = !empty;
      wrong.textContent = empty ? 'Fill this in.' : '';
      box.setAttribute('aria-invalid', empty ? 'true' : 'false');
      return empty;
    },
  };
}
