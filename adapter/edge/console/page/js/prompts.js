// The prompts of a server: their arguments, and the messages that they make.

import { get } from './api.js';
import { requester } from './asking.js';
import { browse } from './browse.js';
import { h } from './dom.js';
import { plain } from './format.js';
import { copyButton } from './leaving.js';
import { badge } from './pieces.js';
import { resultNode } from './result.js';
import { textForm } from './texts.js';

const MOST_ARGUMENTS = 100;
const MOST_MESSAGES = 200;

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
    signal,
  });
  form.node.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    request.start();
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
