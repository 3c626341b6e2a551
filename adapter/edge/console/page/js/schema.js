// What a JSON Schema says about the control that its value needs. Knows nothing of the page.

const DEEPEST_REFERENCE = 32;

/** The schema behind a `$ref` within `root`, and the members that stand beside it; `allOf` is folded in. */
export function resolve(schema, root) {
  let here = schema;
  for (let steps = 0; typeof here?.$ref === 'string' && steps < DEEPEST_REFERENCE; steps += 1) {
    const { $ref, ...beside } = here;
    here = { ...pointed(root, $ref), ...beside };
  }
  if (here === null || typeof here !== 'object' || Array.isArray(here)) return {};
  return Array.isArray(here.allOf) && here.allOf.length < DEEPEST_REFERENCE ? folded(here, root) : here;
}

/** The names in a JSON Pointer. */
export const steps = (pointer) =>
  pointer
    .split('/')
    .slice(1)
    .map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'));

function pointed(root, reference) {
  if (!reference.startsWith('#')) return {};
  const found = steps(reference).reduce((here, name) => (own(here, name) ? here[name] : undefined), root);
  return found && typeof found === 'object' && found !== root ? found : {};
}

function folded({ allOf, ...whole }, root) {
  return allOf.reduce((sum, part) => {
    const one = part?.allOf ? {} : resolve(part, root);
    return {
      ...one,
      ...sum,
      properties: { ...one.properties, ...sum.properties },
      required: [...new Set([...list(one.required), ...list(sum.required)])],
    };
  }, whole);
}

export const list = (value) => (Array.isArray(value) ? value : []);

export const own = (object, name) => object !== null && typeof object === 'object' && Object.hasOwn(object, name);

/** The types that a schema allows, without null. */
function types(schema) {
  return (Array.isArray(schema.type) ? schema.type : [schema.type]).filter(
    (type) => typeof type === 'string' && type !== 'null',
  );
}

/** Whether null is a value of it. */
export const nullable = (schema) =>
  list(schema.type).includes('null') || list(schema.anyOf).some((one) => one?.type === 'null');

/**
 * The kind of control: choice, string, number, integer, boolean, array, object, or json where no form fits.
 * Gives back the schema to build it from too, which is another one where `anyOf` is but a way to say "or null".
 */
export function kind(schema, root) {
  const here = resolve(schema, root);
  if (own(here, 'const')) return ['choice', { ...here, enum: [here.const] }];
  if (Array.isArray(here.enum) && here.enum.length)
    return ['choice', Array.isArray(here.enumNames) ? { ...here, titles: here.enumNames } : here];
  const variants = list(here.anyOf ?? here.oneOf)
    .map((one) => resolve(one, root))
    .filter((one) => one.type !== 'null');
  if (variants.length) {
    const { anyOf: _, oneOf: __, ...beside } = here;
    if (variants.every((one) => own(one, 'const')))
      return [
        'choice',
        { ...beside, enum: variants.map((one) => one.const), titles: variants.map((one) => one.title) },
      ];
    if (variants.length === 1) return kind({ ...variants[0], ...beside, type: variants[0].type }, root);
    return ['json', here];
  }
  const [type, ...others] = types(here);
  if (others.length) return ['json', here];
  if (type === undefined) return [own(here, 'properties') ? 'object' : 'json', here];
  if (type === 'object') return [here.properties && Object.keys(here.properties).length ? 'object' : 'json', here];
  if (type === 'array' && here.uniqueItems === true && kind(resolve(here.items, root), root)[0] === 'choice')
    return ['choices', { ...here, of: kind(here.items, root)[1] }];
  if (type === 'array')
    return [here.items && typeof here.items === 'object' && !Array.isArray(here.items) ? 'array' : 'json', here];
  return [['string', 'number', 'integer', 'boolean'].includes(type) ? type : 'json', here];
}

const LISTED = {
  string: 'strings',
  number: 'numbers',
  integer: 'integers',
  boolean: 'booleans',
  choice: 'choices',
  array: 'lists',
  object: 'objects',
  choices: 'choices',
  json: 'values',
};

const FOR_PEOPLE = { string: 'text', integer: 'whole number', boolean: 'yes or no' };

/** A few words on what values are good: `string · date-time · at most 20`; a `person` reads no names of types. */
export function manner(schema, root, person = false) {
  const [found, here] = kind(schema, root);
  const words = [];
  if (found === 'array') words.push(`list of ${LISTED[kind(here.items, root)[0]]}`);
  else if (found === 'choices') words.push(`any of ${here.of.enum.length}`);
  else if (found === 'choice') words.push(here.enum.length === 1 ? 'always the same' : `one of ${here.enum.length}`);
  else if (found === 'json') words.push(types(here).join(' or ') || 'any JSON');
  else words.push(person ? (FOR_PEOPLE[found] ?? found) : found);
  if (typeof here.format === 'string') words.push(here.format);
  const between = (least, most, what) => {
    if (Number.isFinite(least) && Number.isFinite(most)) words.push(`${least} – ${most}${what}`);
    else if (Number.isFinite(least)) words.push(`at least ${least}${what}`);
    else if (Number.isFinite(most)) words.push(`at most ${most}${what}`);
  };
  between(here.minimum, here.maximum, '');
  between(here.minLength || undefined, here.maxLength, ' characters');
  between(here.minItems || undefined, here.maxItems, ' items');
  if (typeof here.pattern === 'string' && here.pattern.length <= 40) words.push(`matches ${here.pattern}`);
  const begin = person || here.default === undefined || here.default === null ? '' : JSON.stringify(here.default);
  if (begin && begin.length <= 40) words.push(`default ${begin}`);
  return words.join(' · ');
}

/** Whether a value can stand in the control of this kind. */
export function fits(value, found) {
  switch (found) {
    case 'string':
      return typeof value === 'string';
    case 'number':
      return typeof value === 'number';
    case 'integer':
      return Number.isInteger(value);
    case 'boolean':
      return typeof value === 'boolean';
    case 'array':
      return Array.isArray(value);
    case 'object':
      return value !== null && typeof value === 'object' && !Array.isArray(value);
    default:
      return true;
  }
}
