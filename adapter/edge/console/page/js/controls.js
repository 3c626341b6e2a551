// Controls of single values: each has a node and reads, writes and finds fault. `undefined` stands for a value left out.

import { forPeople } from './attach.js';
import { button, h, unique } from './dom.js';
import { fileControl } from './files.js';
import { plain } from './format.js';
import { fits, manner, nullable } from './schema.js';

/** What a control needs to know beside its schema: the whole schema, a listener, the helper for files if there is one. */
export class Surroundings {
  /** `person`: a server asks a person, so fields have titles for people, and all defaults are filled in. */
  constructor(root, changed, helper, { person = false } = {}) {
    Object.assign(this, { root, changed, helper, person });
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
  const said = described(schema, around);
  const wrong = h('p', { class: 'fault', id: fault, hidden: true });
  const node = h(
    'div',
    { class: 'field' },
    h(
      'div',
      { class: 'field-head' },
      h('label', { for: control.focusable.id, class: 'name' }, titled(name, schema, around)),
      required && !item ? h('span', { class: 'mark required' }, 'required') : null,
      h('span', { class: 'manner' }, control.manner ?? manner(schema, around.root, around.person)),
    ),
    said ? h('p', { class: 'hint', id: hint }, said) : null,
    h('div', { class: 'control' }, control.node),
    wrong,
  );
  control.focusable.setAttribute('aria-describedby', [said && hint, fault].filter(Boolean).join(' '));
  if (required) control.focusable.setAttribute('aria-required', 'true');
  return {
    node,
    read: control.read,
    write: control.write,
    upload: control.upload,
    blame(message) {
      wrong.textContent = message;
      wrong.hidden = !message;
      control.focusable.setAttribute('aria-invalid', message ? 'true' : 'false');
    },
    find() {
      return this;
    },
    focus: () => (control.focus ? control.focus() : control.focusable.focus()),
  };
}

/** What a schema says of itself, in words for people. */
export const described = (schema, around) =>
  typeof schema.description === 'string' ? forPeople(schema.description, around.helper?.tool).slice(0, 2000) : '';

/** The name of a field for people: the title that a server gave it, else its name. */
const titled = (name, schema, around) =>
  around.person && typeof schema.title === 'string' && schema.title ? plain(schema.title, 200) : name;

/** The value of an empty control that was not touched: null asks the reader for it, nothing leaves it out. */
const empty = (required) => (required ? null : undefined);

const INPUTS = { 'date-time': 'datetime-local', date: 'date', email: 'email', uri: 'url', password: 'password' };

export function stringControl({ schema, required, around, name, spoken = name, sure = false }) {
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
  // A format of URIs is what handles are, too.
  if (!around.helper || (type && type !== 'url')) return control;
  return fileControl(control, box, { name: spoken, around, sure: sure || around.helper.isNamed(schema) });
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

/** Several of a few JSON values, each at most once, as a list. */
export function choicesControl({ schema, required, around, name }) {
  const { enum: values, titles } = schema.of;
  const boxes = values.map((value, at) => {
    const box = h('input', { type: 'checkbox', id: unique(), on: { change: changed } });
    const text = titles?.[at] ?? (typeof value === 'string' ? value : JSON.stringify(value));
    return [box, h('div', { class: 'check' }, box, h('label', { for: box.id }, plain(text, 300) || '(empty)'))];
  });
  let given = required;
  function changed() {
    given = true;
    around.changed();
  }
  const group = h(
    'div',
    { class: 'checks', role: 'group', id: unique(), tabindex: '-1', 'aria-label': plain(name, 200) },
    boxes.map(([, line]) => line),
  );
  return {
    node: group,
    focusable: group,
    read: () => (given || boxes.some(([box]) => box.checked) ? values.filter((_, at) => boxes[at][0].checked) : undefined),
    write(value) {
      const wanted = (Array.isArray(value) ? value : []).map((one) => JSON.stringify(one));
      given = required || Array.isArray(value);
      values.forEach((one, at) => {
        boxes[at][0].checked = wanted.includes(JSON.stringify(one));
      });
      const known = values.map((one) => JSON.stringify(one));
      return value === undefined || value === null || (Array.isArray(value) && wanted.every((one) => known.includes(one)));
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
