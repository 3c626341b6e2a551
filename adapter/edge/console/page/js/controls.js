// Controls of single values: each has a node and reads, writes and finds fault. `undefined` stands for a value left out.

import { attachment } from './attach.js';
import { button, h, unique } from './dom.js';
import { fits, manner, nullable } from './schema.js';

/** What a control needs to know beside its schema: the whole schema, a listener, the helper for files if there is one. */
export class Surroundings {
  constructor(root, changed, helper) {
    Object.assign(this, { root, changed, helper });
  }

  /** The same for a member, among others: files are attached where the adapter wrote that it takes them, if it did. */
  of(member, members) {
    if (!this.helper || this.helper.isNamed(member) || !members.some((one) => this.helper.isNamed(one))) return this;
    return new Surroundings(this.root, this.changed, null);
  }
}

/** The frame of a control: its name, marks and description, and the place for a fault. */
export function framed(control, { name, schema, required, around, item = false }) {
  const [hint, fault] = [unique('hint'), unique('fault')];
  const said = typeof schema.description === 'string' ? schema.description : '';
  const wrong = h('p', { class: 'fault', id: fault, hidden: true });
  const node = h(
    'div',
    { class: 'field' },
    h(
      'div',
      { class: 'field-head' },
      h('label', { for: control.focusable.id, class: 'name' }, name),
      required && !item ? h('span', { class: 'mark required' }, 'required') : null,
      h('span', { class: 'manner' }, manner(schema, around.root)),
    ),
    said ? h('p', { class: 'hint', id: hint }, said.slice(0, 2000)) : null,
    h('div', { class: 'control' }, control.node),
    wrong,
  );
  control.focusable.setAttribute('aria-describedby', [said && hint, fault].filter(Boolean).join(' '));
  if (required) control.focusable.setAttribute('aria-required', 'true');
  return {
    node,
    read: control.read,
    write: control.write,
    blame(message) {
      wrong.textContent = message;
      wrong.hidden = !message;
      control.focusable.setAttribute('aria-invalid', message ? 'true' : 'false');
    },
    find() {
      return this;
    },
    focus: () => control.focusable.focus(),
  };
}

/** The value of an empty control that was not touched: null asks the reader for it, nothing leaves it out. */
const empty = (required) => (required ? null : undefined);

const INPUTS = { 'date-time': 'datetime-local', date: 'date', email: 'email', uri: 'url', password: 'password' };

export function stringControl({ schema, required, around }) {
  const type = INPUTS[schema.format];
  let touched = false;
  const changed = () => {
    touched = true;
    around.changed();
  };
  const box = type
    ? h('input', {
        id: unique(),
        type,
        step: type === 'datetime-local' ? '1' : null,
        autocomplete: 'off',
        on: { input: changed },
      })
    : h('textarea', { id: unique(), rows: 1, spellcheck: 'false', autocomplete: 'off', on: { input: changed } });
  const node = h('div', { class: 'with-clip' }, box);
  const control = {
    node,
    focusable: box,
    read() {
      if (box.value === '') return touched && required ? '' : empty(required);
      return type === 'datetime-local' ? zoned(box.value) : box.value;
    },
    write(value) {
      if (value === null || value === undefined) box.value = '';
      else if (typeof value !== 'string') return false;
      else if (type === 'datetime-local') {
        const local = unzoned(value);
        if (local === null) return false;
        box.value = local;
      } else box.value = value;
      if (value === '') touched = true;
      return box.value !== '' || !value;
    },
  };
  if (around.helper && !type) {
    const clip = attachment(around.helper, (handle) => {
      control.write(handle);
      around.changed();
    });
    node.append(clip.button);
    return { ...control, node: h('div', { class: 'stack' }, node, clip.progress) };
  }
  return control;
}

/** A local date and time with its offset, as RFC 3339 wants it. */
function zoned(local) {
  const at = new Date(local);
  const offset = -at.getTimezoneOffset();
  const two = (number) => String(Math.floor(Math.abs(number))).padStart(2, '0');
  const seconds = local.length === 16 ? `${local}:00` : local;
  return offset === 0 ? `${seconds}Z` : `${seconds}${offset < 0 ? '-' : '+'}${two(offset / 60)}:${two(offset % 60)}`;
}

function unzoned(text) {
  const at = Date.parse(text);
  if (Number.isNaN(at)) return null;
  return new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

export function numberControl({ schema, required, around, whole }) {
  const box = h('input', {
    id: unique(),
    type: 'number',
    step: whole ? '1' : 'any',
    inputmode: whole ? 'numeric' : 'decimal',
    autocomplete: 'off',
    min: schema.minimum,
    max: schema.maximum,
    on: { input: around.changed },
  });
  return {
    node: box,
    focusable: box,
    read: () => (box.value === '' ? empty(required) : Number(box.value)),
    write(value) {
      if (value !== null && value !== undefined && !fits(value, whole ? 'integer' : 'number')) return false;
      box.value = value ?? '';
      return true;
    },
  };
}

/** A choice among JSON values; a boolean is one of true and false. */
export function choiceControl({ schema, required, around }) {
  const values = schema.enum;
  const shown = values.map(
    (value, at) => schema.titles?.[at] ?? (typeof value === 'string' ? value : JSON.stringify(value)),
  );
  const box = h(
    'select',
    { id: unique(), on: { change: around.changed } },
    h('option', { value: '' }, required ? 'Choose…' : 'Not set'),
    shown.map((text, at) => h('option', { value: at }, text === '' ? '(empty)' : text)),
  );
  return {
    node: box,
    focusable: box,
    read: () => (box.value === '' ? empty(required) : values[Number(box.value)]),
    write(value) {
      const at = values.findIndex((one) => JSON.stringify(one) === JSON.stringify(value));
      box.value = at < 0 ? '' : String(at);
      return at >= 0 || value === null || value === undefined;
    },
  };
}

/** true, false, and for what may be left out a third place. */
export function booleanControl({ required, around }) {
  const group = unique('bool');
  const radios = [['true', 'Yes'], ['false', 'No'], ...(required ? [] : [['', 'Not set']])].map(([value, text]) => {
    const radio = h('input', { type: 'radio', name: group, id: unique(), value, on: { change: around.changed } });
    return [radio, h('label', { for: radio.id }, text)];
  });
  const chosen = () => radios.find(([radio]) => radio.checked)?.[0].value ?? '';
  const control = {
    node: h('div', { class: 'segments', role: 'radiogroup' }, radios),
    focusable: radios[0][0],
    read: () => ({ true: true, false: false })[chosen()] ?? empty(required),
    write(value) {
      for (const [radio] of radios) radio.checked = radio.value === (typeof value === 'boolean' ? String(value) : '');
      return typeof value === 'boolean' || value === null || value === undefined;
    },
  };
  control.write(undefined);
  return control;
}

/** Any JSON, as text. What cannot be read is a fault that `read` raises as SyntaxError. */
export function jsonControl({ schema, required, around }) {
  const box = h('textarea', {
    id: unique(),
    class: 'code',
    rows: 2,
    spellcheck: 'false',
    autocomplete: 'off',
    placeholder: 'JSON',
    on: { input: around.changed },
  });
  return {
    node: box,
    focusable: box,
    read: () => (box.value.trim() === '' ? empty(required || (nullable(schema) && required)) : JSON.parse(box.value)),
    write(value) {
      box.value = value === undefined || (value === null && required) ? '' : JSON.stringify(value, null, 2);
      return true;
    },
  };
}

/** The small button that takes an item out of a list. */
export const removal = (what, act) =>
  button('', act, { look: 'quiet icon', picture: 'cross', 'aria-label': `Remove ${what}` });
