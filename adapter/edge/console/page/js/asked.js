// What a server may ask a person by a form (MCP 2025-11-25, "Elicitation"): a flat object of simple fields. Knows
// nothing of the page.

import { kind, list, own } from './schema.js';

const MOST_FIELDS = 50;
const MOST_CHOICES = 500;
const LONGEST_NAME = 200;
const EMAIL = /^[^\s@]{1,254}@[^\s@]{1,254}$/;
const DATE = /^\d{4}-\d{2}-\d{2}$/;

/** The schema for a form, or null where the server asks for what no form here can hold. */
export function formSchema(asked) {
  if (asked === null || typeof asked !== 'object' || asked.type !== 'object') return null;
  const given = asked.properties ?? {};
  if (typeof given !== 'object' || Object.keys(given).length > MOST_FIELDS) return null;
  const properties = {};
  for (const [name, schema] of Object.entries(given)) {
    const one = name.length <= LONGEST_NAME && simple(schema);
    if (!one) return null;
    Object.defineProperty(properties, name, { value: one, enumerable: true });
  }
  return { type: 'object', properties, required: list(asked.required).filter((name) => own(properties, name)) };
}

function simple(schema) {
  if (schema === null || typeof schema !== 'object') return null;
  // A list of choices has each of them at most once.
  const one = schema.type === 'array' ? { ...schema, uniqueItems: true } : schema;
  const [found, here] = kind(one, one);
  if (!['string', 'number', 'integer', 'boolean', 'choice', 'choices'].includes(found)) return null;
  const values = found === 'choices' ? here.of.enum : found === 'choice' ? here.enum : [];
  return values.length > MOST_CHOICES ? null : one;
}

/** What is wrong with the content of a form, as `{path, message}`; what was left out is not in `content`. */
export function faults(schema, content) {
  const found = [];
  for (const [name, one] of Object.entries(schema.properties)) {
    const value = own(content, name) ? content[name] : undefined;
    const needed = schema.required.includes(name);
    const message = value === undefined || value === null ? needed && 'Fill this in.' : wrong(one, value);
    if (message) found.push({ path: `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`, message });
  }
  return found;
}

function wrong(schema, value) {
  const [found, here] = kind(schema, schema);
  if (found === 'string') return wrongText(here, value);
  if (found === 'choices') {
    if (value.length < (here.minItems ?? 0)) return `Choose at least ${here.minItems}.`;
    return value.length > (here.maxItems ?? Infinity) ? `Choose at most ${here.maxItems}.` : null;
  }
  if (found !== 'number' && found !== 'integer') return null;
  if (!Number.isFinite(value)) return 'This must be a number.';
  if (found === 'integer' && !Number.isInteger(value)) return 'This must be a whole number.';
  if (value < (here.minimum ?? -Infinity)) return `The least is ${here.minimum}.`;
  return value > (here.maximum ?? Infinity) ? `The most is ${here.maximum}.` : null;
}

function wrongText({ minLength = 0, maxLength = Infinity, format }, value) {
  const length = [...value].length;
  if (length < minLength) return `This needs at least ${minLength} characters.`;
  if (length > maxLength) return `This may have at most ${maxLength} characters.`;
  if (value === '') return null;
  if (format === 'email' && !EMAIL.test(value)) return 'This is not an e-mail address.';
  if (format === 'uri' && !URL.canParse(value)) return 'This is not a URL.';
  if (format === 'date' && !(DATE.test(value) && !Number.isNaN(Date.parse(value)))) return 'This is not a date.';
  return format === 'date-time' && Number.isNaN(Date.parse(value)) ? 'This is not a date and a time.' : null;
}
