// Fields of a form: one for each member of a schema, lists and objects with the fields of their parts.

import {
  booleanControl,
  choiceControl,
  choicesControl,
  described,
  framed,
  jsonControl,
  numberControl,
  removal,
  stringControl,
} from './controls.js';
import { button, fill, h, icon } from './dom.js';
import { dropZone } from './files.js';
import { fits, kind, list, manner, own } from './schema.js';

const DEEPEST = 8;
const MOST_FIELDS = 200;

/**
 * The field for `schema`. `read()` is its value or undefined; `write(value)` says whether the value fits here;
 * `find(names)` is the field of a part, by the names of a JSON Pointer; `blame(message)` shows what is wrong.
 */
export function field(options) {
  const { schema, around, depth = 0 } = options;
  const [found, here] = fileKind(schema, around) ?? kind(schema, around.root);
  const given = { ...options, schema: here, depth };
  // So deep, or so wide, a form helps nobody more than JSON does.
  if (depth >= DEEPEST && (found === 'object' || found === 'array')) return leaf(jsonControl, given);
  if (found === 'object')
    return Object.keys(here.properties).length > MOST_FIELDS ? leaf(jsonControl, given) : objectField(given);
  if (found === 'array') return arrayField(given);
  const make = {
    string: stringControl,
    number: numberControl,
    integer: numberControl,
    boolean: booleanControl,
    choice: choiceControl,
    choices: choicesControl,
  };
  return leaf(make[found] ?? jsonControl, given, found);
}

/** The kind of a field that takes one file or a list of them, where only the adapter's words say so; null for others. */
function fileKind(schema, around) {
  const [found, here] = kind(schema, around.root);
  if (found !== 'json' || !around.helper?.isNamed(here.description)) return null;
  const { anyOf, ...beside } = here;
  const branches = list(anyOf).map((one) => kind(one, around.root));
  const many = branches.find(([one, shape]) => one === 'array' && kind(shape.items, around.root)[0] === 'string');
  if (many) return ['array', { ...many[1], ...beside }];
  return branches.some(([one]) => one === 'string') ? ['string', { ...beside, type: 'string' }] : null;
}

function leaf(make, options, found) {
  const control = make({ ...options, whole: found === 'integer' });
  return framed(control, options);
}

/** A field whose place is taken by one for JSON as soon as a value comes that it cannot show. */
function slot(options) {
  let inner = field(options);
  return {
    get node() {
      return inner.node;
    },
    read: () => inner.read(),
    write(value) {
      if (inner.write(value)) return true;
      const plain = leaf(jsonControl, { ...options, schema: kind(options.schema, options.around.root)[1] });
      inner.node.replaceWith(plain.node);
      inner = plain;
      return inner.write(value);
    },
    upload: (file) => inner.upload?.(file),
    find: (names) => inner.find(names),
    blame: (message) => inner.blame(message),
    focus: () => inner.focus(),
  };
}

/** Frame of what has parts: a legend, a description, the parts. */
function group({ name, schema, required, around, item, manner: said = null }, ...content) {
  const wrong = h('p', { class: 'fault', hidden: true });
  const node = h(
    'fieldset',
    { class: 'group' },
    h(
      'legend',
      {},
      h('span', { class: 'name' }, name),
      required && !item ? h('span', { class: 'mark required' }, 'required') : null,
      h('span', { class: 'manner' }, said ?? manner(schema, around.root)),
    ),
    described(schema, around) ? h('p', { class: 'hint' }, described(schema, around)) : null,
    content,
    wrong,
  );
  const blame = (message) => {
    wrong.textContent = message;
    wrong.hidden = !message;
  };
  return [node, blame];
}

/** The members of an object, without a frame: what a form and an object's field have in common. */
export function members({ schema, around, depth = 0 }) {
  const names = Object.keys(schema.properties ?? {});
  const needed = new Set(list(schema.required));
  // The required ones first, in the order of the schema: a reader fills in from the top.
  names.sort((one, other) => needed.has(other) - needed.has(one));
  const fields = new Map(
    names.map((name) => [
      name,
      slot({
        name,
        schema: schema.properties[name],
        required: needed.has(name),
        around: around.of(schema.properties[name], Object.values(schema.properties)),
        depth: depth + 1,
      }),
    ]),
  );
  let beside = {};
  return {
    nodes: [...fields.values()].map((one) => one.node),
    size: fields.size,
    read() {
      const value = {};
      for (const [name, one] of fields) {
        const read = one.read();
        if (read !== undefined) put(value, name, read);
      }
      for (const [name, read] of Object.entries(beside)) put(value, name, read);
      return value;
    },
    write(value) {
      for (const [name, one] of fields) one.write(own(value, name) ? value[name] : undefined);
      beside = Object.fromEntries(Object.entries(value ?? {}).filter(([name]) => !fields.has(name)));
    },
    prefill() {
      for (const [name, one] of fields) {
        const begin = kind(schema.properties[name], around.root)[1].default;
        if ((needed.has(name) || around.person) && begin !== undefined) one.write(begin);
      }
    },
    find: ([name, ...rest]) => (name === undefined ? null : (fields.get(name)?.find(rest) ?? null)),
    clear() {
      for (const one of fields.values()) clear(one);
    },
  };
}

/** Sets a member whatever its name is: `__proto__` is a name like any other. */
function put(object, name, value) {
  Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}

const clear = (one) => (one.clear ? one.clear() : one.blame(''));

function objectField(options) {
  const { schema, required, around, name } = options;
  const body = h('div', { class: 'parts' });
  const toggle = required
    ? null
    : button('Add', () => show(!inner), { look: 'small', picture: 'plus', 'aria-label': `Add ${name}` });
  const [node, blame] = group(options, toggle, body);
  let inner = null;
  // An optional object is built when it is wanted: a schema that refers to itself has no end.
  function show(wanted) {
    inner = wanted ? members(options) : null;
    body.replaceChildren(...(inner?.nodes ?? []));
    inner?.prefill();
    if (toggle) {
      fill(toggle, icon(wanted ? 'cross' : 'plus'), h('span', {}, wanted ? 'Leave out' : 'Add'));
      toggle.setAttribute('aria-label', `${wanted ? 'Leave out' : 'Add'} ${name}`);
    }
    around.changed();
  }
  if (required) show(true);
  return {
    node,
    read: () => inner?.read(),
    write(value) {
      if (value === undefined || value === null) {
        if (!required) show(false);
        else inner.write({});
        return true;
      }
      if (!fits(value, 'object')) return false;
      if (!inner) show(true);
      inner.write(value);
      return true;
    },
    find: (names) =>
      names.length
        ? (inner?.find(names) ?? { blame, focus: () => node.scrollIntoView() })
        : { blame, focus: () => node.scrollIntoView() },
    blame,
    clear() {
      blame('');
      inner?.clear();
    },
    focus: () => node.scrollIntoView(),
  };
}

function arrayField(options) {
  const { schema, required, around, name, depth } = options;
  const body = h('div', { class: 'items' });
  const add = button('Add', () => push(undefined).focus(), {
    look: 'small',
    picture: 'plus',
    'aria-label': `Add to ${name}`,
  });
  const files = around.helper?.isNamed(schema) && kind(schema.items, around.root)[0] === 'string';
  const zone = files ? dropZone(around.helper, name, (chosen) => chosen.forEach((file) => push(undefined).upload(file))) : null;
  const [node, blame] = group({ ...options, manner: files ? 'list of files' : null }, body, zone, add);
  let items = [];
  let given = required;
  function push(value) {
    given = true;
    const one = slot({
      name: `${items.length + 1}`,
      schema: schema.items,
      required: true,
      item: true,
      sure: files,
      spoken: `${name} ${items.length + 1}`,
      around,
      depth: depth + 1,
    });
    const row = h(
      'div',
      { class: 'item' },
      one.node,
      removal(`${name} ${items.length + 1}`, () => {
        items = items.filter((other) => other !== entry);
        row.remove();
        add.focus();
        around.changed();
      }),
    );
    const entry = { one, row };
    items.push(entry);
    body.append(row);
    if (value !== undefined) one.write(value);
    around.changed();
    return one;
  }
  return {
    node,
    read: () => (items.length || given ? items.map(({ one }) => one.read()) : undefined),
    write(value) {
      if (value !== undefined && value !== null && (!Array.isArray(value) || value.length > MOST_FIELDS)) return false;
      items = [];
      body.replaceChildren();
      given = required || Array.isArray(value);
      for (const item of value ?? []) push(item);
      return true;
    },
    find: ([at, ...rest]) =>
      (at === undefined ? null : items[Number(at)]?.one.find(rest)) ?? { blame, focus: () => add.focus() },
    blame,
    clear() {
      blame('');
      for (const { one } of items) clear(one);
    },
    focus: () => add.focus(),
  };
}
