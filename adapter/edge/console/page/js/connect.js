// Connecting a client to a server: its address, and the entry for each client's own file. No token is ever among them.

import { get } from './api.js';
import { fill, h } from './dom.js';
import { plain } from './format.js';
import { copyHead, loading, waiting } from './pieces.js';
import { tabs } from './tabs.js';

const LONGEST = 20_000;
const FOLDERS = { project: ' in the folder of your project', config: ' in the folder of its settings' };

export function showConnect({ signal, id }) {
  const node = h('div', { class: 'connect stack' }, waiting());
  loading(node, async () => {
    const told = await get(`-/connect/${encodeURIComponent(id)}`, { signal });
    // A client needs one entry for all servers of a mount.
    fill(node, ...told.merged.flatMap((one) => connection(one, 'mount')), ...connection(told, 'server'));
  });

  return node;
}

const connection = (one, kind) => [address(one, `${kind} ${plain(one.id, 80)}`), clients(one)];

function address({ url, token, signs_in: signsIn }, of) {
  return h(
    'section',
    { class: 'card stack' },
    copyHead(h('h2', {}, `Address of ${of}`), () => url),
    code(url, `Address of ${of}`),
    h('p', { class: 'hint' }, credential(token, signsIn)),
  );
}

function credential(token, signsIn) {
  const sends = `Clients send the header Authorization: Bearer and a token for the adapter. The entries below name the variable ${plain(token, 80)}; set it where the client starts.`;
  if (token && signsIn) return `${sends} Clients that sign people in need no token.`;
  if (token) return sends;
  return signsIn ? 'The client signs you in with your browser; no token is needed.' : 'No token is needed.';
}

function clients(told) {
  const all = Array.isArray(told.clients) ? told.clients : [];
  const choice = tabs(
    'Clients',
    all.map(({ id, title }) => [id, plain(title, 60)]),
    (wanted) => {
      fill(choice.panel, entry(all.find(({ id }) => id === wanted), told));
    },
  );
  fill(choice.panel, entry(all[0], told));
  return h('section', { class: 'card stack' }, h('h2', {}, 'Clients'), choice.list, choice.panel);
}

function entry(client, { id, token }) {
  const { title, file, folder, text, note, command, placeholder, link } = client;
  return h(
    'div',
    { class: 'stack' },
    copyHead(h('h3', {}, 'Add to ', h('code', {}, plain(file, 120)), FOLDERS[folder] ?? ''), () => text),
    code(text, `Entry for ${title}: ${plain(id, 80)}`),
    placeholder
      ? h('p', { class: 'notice' }, `Put the token in place of ${plain(placeholder, 120)}: ${title} reads no variables.`)
      : token
        ? h('p', { class: 'hint' }, `${title} reads the token from ${plain(token, 80)}.`)
        : null,
    h('p', { class: 'hint' }, plain(note, 300)),
    link ? h('p', {}, h('a', { href: link }, `Add to ${title}`)) : null,
    copyHead(h('h3', {}, 'Or have the command do it'), () => command),
    code(command, `Command for ${title}: ${plain(id, 80)}`),
  );
}

const code = (text, label) =>
  h('pre', { class: 'code', tabindex: '0', role: 'region', 'aria-label': label }, String(text ?? '').slice(0, LONGEST));
