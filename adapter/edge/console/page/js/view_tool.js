// One tool: what it is, a form to run it, its schema, the same call for the terminal.

import { get } from './api.js';
import { Helper, forPeople } from './attach.js';
import { fill, h } from './dom.js';
import { argumentForm } from './form.js';
import { plain } from './format.js';
import { copyHead, failed, titleOf } from './pieces.js';
import { runner } from './runner.js';
import { curl, python } from './snippets.js';
import { tabs } from './tabs.js';
import { claims } from './terms.js';
import { tree } from './tree.js';
import { server as known, toolPath } from './world.js';

const LONG = 600;

/** `{node, form}` of a tool: its form of arguments is null where the node says why the tool cannot be shown. */
export async function showTool({ signal, server, name }) {
  let tool;
  try {
    tool = await get(toolPath(server, name), { signal });
  } catch (failure) {
    return { node: failure.name === 'AbortError' ? h('div') : failed(failure), form: null };
  }
  const form = argumentForm(tool.inputSchema, helperOf(server, tool), () => {});
  const run = runner({ server, name, form, signal });
  const choice = tabs(
    'About this tool',
    [
      ['run', 'Run'],
      ['schema', 'Schema'],
      ['code', 'cURL & Python'],
    ],
    (wanted) => {
      fill(
        choice.panel,
        { run: () => run, schema: () => schemaNode(tool), code: () => codeNode(server, name, form) }[wanted](),
      );
    },
  );
  fill(choice.panel, run);
  const node = h(
    'article',
    { class: 'tool' },
    h(
      'header',
      {},
      h('h2', { class: 'mono', tabindex: '-1' }, plain(name, 300)),
      titleOf(tool) ? h('p', { class: 'told' }, titleOf(tool)) : null,
      claims(tool.annotations),
      about(forPeople(String(tool.description ?? ''), known(server)?.helper)),
    ),
    choice.list,
    choice.panel,
  );
  return { node, form };
}

/** How files get to the tool; null where it takes none. Without any description nobody can tell. */
function helperOf(server, tool) {
  const offered = known(server)?.helper;
  if (!offered || offered === tool.name) return null;
  const helper = new Helper(server, offered);
  return helper.isNamed([tool.description, tool.inputSchema]) || !tool.description ? helper : null;
}

function about(text) {
  if (!text) return h('p', { class: 'about' }, 'The server has no description of this tool.');
  if (text.length <= LONG) return h('p', { class: 'about pre' }, text);
  return h(
    'details',
    { class: 'about' },
    h('summary', {}, text.slice(0, 200).trimEnd(), '…'),
    h('p', { class: 'pre' }, text.slice(0, 50_000)),
  );
}

function schemaNode(tool) {
  const schema = tool.inputSchema ?? {};
  return h(
    'div',
    { class: 'stack' },
    copyHead(h('h3', {}, 'Input schema'), () => JSON.stringify(schema, null, 2)),
    tree(schema, { depth: 3 }),
    tool.outputSchema ? [h('h3', {}, 'Output schema'), tree(tool.outputSchema, { depth: 2 })] : null,
    tool.annotations
      ? [
          h('h3', {}, 'Annotations'),
          h('p', { class: 'hint' }, 'Claims of the server. The adapter does not check them.'),
          tree(tool.annotations, { depth: 2 }),
        ]
      : null,
  );
}

function codeNode(server, name, form) {
  let args;
  try {
    args = form.read();
  } catch (failure) {
    return h('p', { class: 'notice' }, failure.message);
  }
  const one = (title, text) =>
    h(
      'section',
      { class: 'stack' },
      copyHead(h('h3', {}, title), () => text),
      h('pre', { class: 'code', tabindex: '0', 'aria-label': title }, text),
    );
  return h(
    'div',
    { class: 'stack' },
    h(
      'p',
      { class: 'hint' },
      'The call with the arguments of the form. If a token is required, put it into the variable MCP_TOKEN.',
    ),
    one('cURL', curl(server, name, args)),
    one('Python', python(server, name, args)),
  );
}
