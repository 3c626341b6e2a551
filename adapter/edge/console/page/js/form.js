// The arguments of a call, as a form and as JSON. Both show the same value: what one cannot show, it keeps.

import { Surroundings } from './controls.js';
import { fill, h, unique } from './dom.js';
import { members } from './fields.js';
import { resolve, steps } from './schema.js';
import { tabs } from './tabs.js';

/**
 * The editor for arguments of `schema`. `helper` is how files are attached, or null.
 * `read()` is the arguments, an object; it raises SyntaxError with a sentence for the reader. `write(value)` fills the
 * fields.
 */
export function argumentForm(schema, helper, changed) {
  const root = schema ?? {};
  const around = new Surroundings(root, changed, helper);
  const fields = members({ schema: resolve(root, root), around });
  const text = h('textarea', {
    class: 'code json',
    id: unique('json'),
    rows: 8,
    spellcheck: 'false',
    autocomplete: 'off',
    'aria-label': 'Arguments as JSON',
    on: { input: changed },
  });
  const wrong = h('p', { class: 'fault', role: 'alert', hidden: true });
  const shape = h(
    'div',
    { class: 'fields' },
    fields.size ? fields.nodes : h('p', { class: 'none' }, 'This tool takes no arguments.'),
  );
  let side = 'form';
  const switcher = tabs(
    'Arguments',
    [
      ['form', 'Form'],
      ['json', 'JSON'],
    ],
    (wanted) => (wanted === side ? true : change(wanted)),
  );
  const panel = switcher.panel;
  fields.prefill();
  fill(panel, shape);

  /** Carries the value over; stays, and says why, where the JSON cannot be read. */
  function change(wanted) {
    complain('');
    try {
      if (wanted === 'json') text.value = JSON.stringify(fields.read(), null, 2);
      else fields.write(parsed());
    } catch (failure) {
      complain(failure.message);
      return false;
    }
    side = wanted;
    fill(panel, wanted === 'json' ? text : shape);
    return true;
  }

  function parsed() {
    if (text.value.trim() === '') return {};
    let value;
    try {
      value = JSON.parse(text.value);
    } catch (failure) {
      throw new SyntaxError(`This is not valid JSON: ${failure.message}`);
    }
    if (value === null || typeof value !== 'object' || Array.isArray(value))
      throw new SyntaxError('Arguments must be an object: { … }');
    return value;
  }

  function complain(message) {
    wrong.textContent = message;
    wrong.hidden = !message;
  }

  return {
    node: h('div', { class: 'arguments' }, switcher.list, panel, wrong),
    read() {
      try {
        return side === 'json' ? parsed() : fields.read();
      } catch (failure) {
        throw new SyntaxError(side === 'json' ? failure.message : `A field is not valid JSON: ${failure.message}`);
      }
    },
    write: fields.write,
    /** Whether the fields are shown, and not the JSON. */
    get isForm() {
      return side === 'form';
    },
    /** Shows each error of a validation at its field, or as a whole; `[]` takes them away. The first is focused. */
    blame(errors) {
      fields.clear();
      complain('');
      const elsewhere = [];
      let first = null;
      for (const { path = '', message } of errors) {
        const names = steps(path);
        const at = side === 'form' && names.length ? fields.find(names) : null;
        if (at) {
          at.blame(at.read?.() === null ? 'Fill this in.' : message);
          first ??= at;
        } else elsewhere.push(path ? `${path}: ${message}` : message);
      }
      complain(elsewhere.join('\n'));
      first?.focus();
    },
    complain,
  };
}
