// The same call as a command and as a script. Every value is quoted for the language it stands in, and the token is
// named by a variable: what is pasted into a terminal stays in its history.

import { base } from './api.js';
import { me, toolPath } from './world.js';

/** `it's` → `'it'"'"'s'`. */
const shell = (text) => `'${text.replaceAll("'", `'"'"'`)}'`;

const address = (server, tool) => new URL(`${toolPath(server, tool)}/call`, base).href;

export function curl(server, tool, args) {
  const lines = [`curl -sS -X POST ${shell(address(server, tool))}`, "-H 'Content-Type: application/json'"];
  if (me.auth) lines.push('-H "Authorization: Bearer $MCP_TOKEN"');
  lines.push(`--data-raw ${shell(JSON.stringify(args))}`);
  return lines.join(' \\\n  ');
}

export function python(server, tool, args) {
  const fields = [
    '"Content-Type": "application/json"',
    ...(me.auth ? ['"Authorization": f"Bearer {os.environ[\'MCP_TOKEN\']}"'] : []),
  ];
  return `import json
${me.auth ? 'import os\n' : ''}import urllib.error
import urllib.request

arguments = ${literal(args, 0)}
request = urllib.request.Request(
    ${text(address(server, tool))},
    data=json.dumps(arguments).encode(),
    headers={${fields.join(', ')}},
)
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:  # a tool that fails answers 500, with its result
    answer = error
result = json.load(answer)
for item in result.get("content", [result]):
    print(item.get("text", item))
`;
}

// A JSON string is a Python string of the same characters, but for two that JavaScript leaves as they are.
const text = (value) =>
  JSON.stringify(value).replace(
    /[\u007f-\u009f\u2028\u2029]/g,
    (hidden) => `\\u${hidden.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

function literal(value, depth) {
  if (value === null) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (typeof value === 'string') return text(value);
  if (typeof value === 'number') return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
  const parts = Array.isArray(value)
    ? value.map((one) => literal(one, depth + 1))
    : Object.entries(value).map(([name, one]) => `${text(name)}: ${literal(one, depth + 1)}`);
  if (!parts.length) return open + close;
  const indent = '    '.repeat(depth + 1);
  return `${open}\n${parts.map((part) => `${indent}${part},\n`).join('')}${'    '.repeat(depth)}${close}`;
}
