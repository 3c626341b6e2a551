// What a server offers beside tools: resources and their templates with variables, shown by what they hold; and
// prompts with their arguments, and the messages that they make.

import { get } from './api.js';
import { requester } from './asking.js';
import { browse } from './browse.js';
import { h } from './dom.js';
import { bytes, plain } from './format.js';
import { copyButton } from './leaving.js';
import { longText } from './longtext.js';
import { markdown } from './markdown.js';
import { essence, inline } from './media.js';
import { badge } from './pieces.js';
import { resultNode } from './result.js';
import { textForm } from './texts.js';
import { expand, variables } from './uri_template.js';

const MOST_ARGUMENTS = 100;
const MOST_MESSAGES = 200;
const MOST_CONTENTS = 100;
const MOST_VARIABLES = 50;
const LONGEST_MARKDOWN = 200_000;

export function showResources({ signal, id, title }) {
  const list = (kind) => get(`${encodeURIComponent(id)}/resources/${kind}`, { signal });
  return browse({
    signal,
    id,
    title,
    noun: 'resource',
    part: 'resources',
    lists: ['resources'],
    empty: 'The server offers no resources, or none to you.',
    async load() {
      const [resources, templates] = await Promise.all([list('list'), list('templates')]);
      return [
        ...resources.filter((one) => typeof one?.uri === 'string').map((one) => ({ key: one.uri, ...named(one), one })),
        ...templates
          .filter((one) => typeof one?.uriTemplate === 'string')
          .map((one) => ({ key: one.uriTemplate, ...named(one), one, marks: badge('template', 'accent') })),
      ];
    },
    open: ({ one }, left) => resourceNode(id, one, left),
  });
}

const named = (one) => ({
  label: one.title || one.name || one.uri || one.uriTemplate,
  about: one.description || one.uri || one.uriTemplate,
});

function resourceNode(server, one, signal) {
  const template = one.uri === undefined;
  const wanted = template ? variables(one.uriTemplate).slice(0, MOST_VARIABLES) : [];
  const form = template ? textForm(server, { type: 'ref/resource', uri: one.uriTemplate }, wanted, signal) : null;
  const address = h('p', { class: 'told mono wrap' }, plain(one.uri ?? one.uriTemplate, 2000));
  const request = requester({
    server,
    path: 'resources/read',
    asker: `The resource ${plain(one.name ?? one.uri, 80)}`,
    label: 'Read',
    picture: 'eye',
    body() {
      if (!template) return { uri: one.uri };
      if (form.blame()) return null;
      const uri = expand(one.uriTemplate, form.read());
      address.textContent = plain(uri, 2000);
      return { uri };
    },
    shown: (answer) => contentsNode(server, one, answer.contents),
    form,
    signal,
  });
  const facts = [essence(one.mimeType), Number.isFinite(one.size) ? bytes(one.size) : null].filter(Boolean);
  return h(
    'article',
    { class: 'tool' },
    h(
      'header',
      {},
      h('h2', { tabindex: '-1' }, plain(one.title || one.name || one.uri || one.uriTemplate, 300)),
      address,
      facts.length ? h('p', { class: 'told' }, plain(facts.join(' · '), 200)) : null,
      one.description ? h('p', { class: 'about pre' }, String(one.description).slice(0, 5000)) : null,
    ),
    form?.node ?? null,
    request.node,
  );
}

function contentsNode(server, resource, contents) {
  const all = Array.isArray(contents) ? contents : [];
  return h(
    'div',
    { class: 'stack' },
    all.slice(0, MOST_CONTENTS).map((one) => contentNode(server, one ?? {}, all.length > 1 ? null : resource.name)),
    all.length > MOST_CONTENTS ? h('p', { class: 'notice' }, `${all.length - MOST_CONTENTS} more are not shown.`) : null,
    all.length ? null : h('p', { class: 'none' }, 'The resource is empty.'),
  );
}

/** One of the contents (`only` is its name where it is the only one): text as text, Markdown without its HTML, pictures and sounds, and all else to download. */
function contentNode(server, { uri, mimeType, text, blob }, only) {
  const name = plain(only ?? (String(uri ?? '').split('/').pop() || 'resource'), 100);
  const type = essence(mimeType);
  return h(
    'section',
    { class: 'card content' },
    only === null ? h('p', { class: 'told mono wrap' }, plain(uri, 500)) : null,
    typeof text === 'string' ? shownText(server, type, text, name) : inline(type, blob, name),
  );
}

function shownText(server, type, text, name) {
  if (type === 'text/markdown' && text.length <= LONGEST_MARKDOWN)
    return h(
      'div',
      { class: 'stack' },
      markdown(text),
      h('details', {}, h('summary', {}, 'Source'), longText(text, { filename: name })),
    );
  if (type === 'application/json') return resultNode(server, { content: [{ type: 'text', text }] });
  return longText(text, { filename: name });
}

export function showPrompts({ signal, id, title }) {
  return browse({
    signal,
    id,
    title,
    noun: 'prompt',
    part: 'prompts',
    lists: ['prompts'],
    empty: 'The server offers no prompts, or none to you.',
    load: async () =>
      (await get(`${encodeURIComponent(id)}/prompts`, { signal }))
        .filter((prompt) => typeof prompt?.name === 'string')
        .map((prompt) => ({ key: prompt.name, label: prompt.title || prompt.name, about: prompt.description, prompt })),
    open: ({ prompt }, left) => promptNode(id, prompt, left),
  });
}

function promptNode(server, prompt, signal) {
  const wanted = (Array.isArray(prompt.arguments) ? prompt.arguments : [])
    .filter((one) => typeof one?.name === 'string')
    .slice(0, MOST_ARGUMENTS)
    .map((one) => ({ ...one, required: one.required === true }));
  const form = textForm(server, { type: 'ref/prompt', name: prompt.name }, wanted, signal);
  const request = requester({
    server,
    path: 'prompts/get',
    asker: `The prompt ${plain(prompt.name, 80)}`,
    label: 'Get',
    picture: 'play',
    body: () => (form.blame() ? null : { name: prompt.name, arguments: form.read() }),
    shown: (answer) => messages(server, answer),
    form,
    signal,
  });
  return h(
    'article',
    { class: 'tool' },
    h(
      'header',
      {},
      h('h2', { class: 'mono', tabindex: '-1' }, plain(prompt.name, 300)),
      h('p', { class: 'about pre' }, String(prompt.description ?? 'The server has no description of it.').slice(0, 5000)),
    ),
    wanted.length ? form.node : h('p', { class: 'none' }, 'This prompt takes no arguments.'),
    request.node,
  );
}

function messages(server, { description, messages: said }) {
  const all = Array.isArray(said) ? said : [];
  return h(
    'div',
    { class: 'stack' },
    description ? h('p', { class: 'about pre' }, String(description).slice(0, 5000)) : null,
    h('div', { class: 'end' }, copyButton('Copy JSON', () => JSON.stringify(all, null, 2))),
    all.slice(0, MOST_MESSAGES).map((message) =>
      h(
        'section',
        { class: 'card message' },
        h('p', {}, badge(plain(message?.role ?? 'unknown', 30), message?.role === 'assistant' ? 'accent' : '')),
        resultNode(server, { content: [message?.content ?? {}] }),
      ),
    ),
    all.length > MOST_MESSAGES ? h('p', { class: 'notice' }, `${all.length - MOST_MESSAGES} more are in the JSON.`) : null,
    all.length ? null : h('p', { class: 'none' }, 'The prompt has no messages.'),
  );
}
