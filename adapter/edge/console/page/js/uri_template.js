// URI templates (RFC 6570) as servers offer them: their variables, and the URI that values make. Knows nothing of the page.

const EXPRESSION = /\{([+#./;?&]?)([^{}]{1,500})\}/g;
const LONGEST = 4000;
const FORMS = {
  '': ['', ',', false],
  '+': ['', ',', false],
  '#': ['#', ',', false],
  '.': ['.', '.', false],
  '/': ['/', '/', false],
  ';': [';', ';', true],
  '?': ['?', '&', true],
  '&': ['&', '&', true],
};

/** The names of its variables in their order, each once; those of a query may be left out. */
export function variables(template) {
  const found = new Map();
  for (const [, operator, names] of String(template).slice(0, LONGEST).matchAll(EXPRESSION))
    for (const name of names.split(',').map(bare))
      if (name && !found.has(name)) found.set(name, { name, required: !['?', '&', '#', ';'].includes(operator) });
  return [...found.values()];
}

const bare = (text) => text.trim().replace(/(\*|:\d{1,4})$/, '');

/** The URI for texts by their names; empty ones are left out. */
export function expand(template, values) {
  return String(template)
    .slice(0, LONGEST)
    .replace(EXPRESSION, (_, operator, names) => {
      const [first, between, named] = FORMS[operator];
      const parts = names
        .split(',')
        .map(bare)
        .filter((name) => values[name])
        .map((name) => {
          const value = ['+', '#'].includes(operator) ? encodeURI(values[name]) : strict(values[name]);
          return named ? `${name}=${value}` : value;
        });
      return parts.length ? first + parts.join(between) : '';
    });
}

const strict = (text) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);
