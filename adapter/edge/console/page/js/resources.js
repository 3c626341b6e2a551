// The resources of a server, and templates of resources with their variables: read and shown by what they hold.

import { get } from './api.js';
import { requester } from './asking.js';
import { browse } from './browse.js';
import { h } from './dom.js';
import { bytes, plain } from './format.js';
import { longText } from './longtext.js';
import { markdown } from './markdown.js';
import { essence, inline } from './media.js';
import { badge } from './pieces.js';
import { resultNode } from './result.js';
import { textForm } from './texts.js';
import { expand, variables } from './uri_template.js';

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
    signal,
  });
  form?.node.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    request.start();
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
