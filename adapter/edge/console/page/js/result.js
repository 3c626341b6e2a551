// A result of a tool, shown by what it holds.

import { fileCard } from './artifact.js';
import { fill, h } from './dom.js';
import { plain } from './format.js';
import { copyButton } from './leaving.js';
import { longText } from './longtext.js';
import { looksLikeMarkdown, markdown } from './markdown.js';
import { inline } from './media.js';
import { passages } from './passages.js';
import { isTable, table } from './table.js';
import { tabs } from './tabs.js';
import { tree } from './tree.js';

const LONGEST_JSON = 2_000_000;
const MOST_ITEMS = 200;

/** The node of a result `{content, structuredContent, isError, _meta}` of a server's tool. */
export function resultNode(server, result) {
  const items = Array.isArray(result?.content) ? result.content : [];
  const artifact = result?._meta?.artifact;
  const parts = [];
  if (typeof artifact?.artifact_uri === 'string') parts.push(fileCard(server, told(artifact), { open: true }));
  const structured = result?.structuredContent;
  if (structured !== undefined && structured !== null) parts.push(valueNode(structured));
  for (const item of items.slice(0, MOST_ITEMS)) {
    if (artifact && repeats(item, artifact)) continue;
    if (structured !== undefined && says(item, structured)) continue;
    parts.push(safely(() => itemNode(server, item)));
  }
  if (items.length > MOST_ITEMS)
    parts.push(h('p', { class: 'notice' }, `${items.length - MOST_ITEMS} more items are in the raw result.`));
  const broken = result?._meta?.artifact_error;
  if (broken)
    parts.push(
      h(
        'p',
        { class: 'notice' },
        `The file of this call was not captured: ${plain(typeof broken === 'string' ? broken : JSON.stringify(broken), 500)}`,
      ),
    );
  return h('div', { class: 'result-items' }, parts.length ? parts : h('p', { class: 'none' }, 'The result is empty.'));
}

/** The raw result as a tree, with its JSON to copy. */
export function rawNode(result) {
  return h(
    'div',
    { class: 'stack' },
    h(
      'div',
      { class: 'end' },
      copyButton('Copy JSON', () => JSON.stringify(result, null, 2)),
    ),
    tree(result, { depth: 2 }),
  );
}

const told = (artifact) => ({
  uri: artifact.artifact_uri,
  filename: artifact.filename,
  media_type: artifact.mime_type,
  size: artifact.size_bytes,
  expires_at: artifact.expires_at,
  download_url: artifact.download_url,
});

/** Whether an item says once more what the artifact's card shows. */
const repeats = (item, artifact) =>
  (item?.type === 'resource_link' && item.uri === artifact.artifact_uri) ||
  (item?.type === 'text' && artifact.download_url && item.text?.startsWith(`Artifact download URL: ${artifact.download_url}`));

/** Whether an item is the structured content as text, as servers send it for clients that read text alone. */
function says(item, structured) {
  if (item?.type !== 'text' || typeof item.text !== 'string' || item.text.length > LONGEST_JSON) return false;
  const read = json(item.text);
  return (
    read !== undefined &&
    (JSON.stringify(read) === JSON.stringify(structured) ||
      JSON.stringify({ result: read }) === JSON.stringify(structured))
  );
}

/** What a broken item makes of itself stays its own. */
function safely(make) {
  try {
    return make();
  } catch {
    return h('p', { class: 'notice' }, 'An item of the result cannot be shown; see the raw result.');
  }
}

function itemNode(server, item) {
  switch (item?.type) {
    case 'text':
      return textNode(String(item.text ?? ''));
    case 'image':
      return inline(item.mimeType, item.data);
    case 'audio':
      return inline(item.mimeType, item.data);
    case 'resource_link':
      return fileCard(server, {
        uri: String(item.uri),
        filename: item.title || item.name,
        media_type: item.mimeType,
        size: item.size,
        description: item.description,
      });
    case 'resource':
      return embedded(item.resource ?? {});
    default:
      return h(
        'div',
        { class: 'stack' },
        h('p', { class: 'notice' }, `An item of type ${plain(item?.type ?? 'unknown', 60)}:`),
        tree(item),
      );
  }
}

function embedded(resource) {
  const name = plain(
    String(resource.uri ?? 'resource')
      .split('/')
      .pop(),
  );
  if (typeof resource.text === 'string')
    return h(
      'div',
      { class: 'stack' },
      h('p', { class: 'told' }, plain(resource.uri, 300)),
      longText(resource.text, { filename: name }),
    );
  return inline(resource.mimeType, resource.blob, name);
}

function textNode(text) {
  const parts = text.length > LONGEST_JSON ? [{ tag: null, text }] : passages(text);
  if (parts.length === 1 && parts[0].tag === null) return proseNode(text);
  return h(
    'div',
    { class: 'stack' },
    parts.map((part) => (part.tag === null ? proseNode(part.text) : passage(part))),
  );
}

/** A marked passage of a text: an interface block as it is meant to look, a note for the model as a note. */
function passage({ tag, title, text }) {
  const notes = {
    llm_directives: 'Directives for the model',
    domain_rules: 'Domain rules',
    action_suggestions: 'Suggested next',
  };
  const heading = title || notes[tag];
  return h(
    'section',
    { class: notes[tag] ? 'card note' : 'card block' },
    heading ? h('h4', { class: 'card-title' }, plain(heading, 200)) : null,
    markdown(text),
  );
}

function proseNode(text) {
  const read = text.length <= LONGEST_JSON && /^\s*[[{]/.test(text) ? json(text) : undefined;
  if (read !== null && typeof read === 'object') return valueNode(read, text);
  if (!looksLikeMarkdown(text)) return longText(text);
  return switched([
    ['shown', 'Rendered', () => markdown(text)],
    ['source', 'Source', () => longText(text)],
  ]);
}

/** A JSON value as a table where it is one, or holds one, and as a tree. */
function valueNode(value, text) {
  const rows = isTable(value) ? value : inner(value);
  const sides = [
    ['tree', 'Tree', () => tree(value, { depth: 2 })],
    ['source', 'Text', () => longText(text ?? JSON.stringify(value, null, 2), { filename: 'result.json' })],
  ];
  if (rows) sides.unshift(['table', 'Table', () => table(rows)]);
  return switched(sides);
}

/** The one list of rows that an object holds: `{"result": [{…}, …]}`. */
function inner(value) {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return null;
  const lists = Object.values(value).filter(isTable);
  return lists.length === 1 ? lists[0] : null;
}

function switched(sides) {
  const choice = tabs(
    'Shown as',
    sides.map(([value, text]) => [value, text]),
    (wanted) => {
      fill(choice.panel, sides.find(([value]) => value === wanted)[2]());
    },
  );
  choice.list.classList.add('mini');
  fill(choice.panel, sides[0][2]());
  return h('div', { class: 'switched' }, choice.list, choice.panel);
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
