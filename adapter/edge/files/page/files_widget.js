// Shows what a tool wrote: a picture, the beginning of a table, or its name; and a button that saves it.

const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/avif'];
const TABLES = { 'text/csv': ',', 'text/tab-separated-values': '\t' };
const [ROWS, COLUMNS, TABLE_BYTES] = [20, 12, 64 * 1024];

/** The files of a result, as its metadata or its structured content tells of them. */
function told({ _meta, structuredContent }) {
  const found = _meta?.artifacts ?? (_meta?.artifact ? [_meta.artifact] : structuredContent?.artifacts);
  return (Array.isArray(found) ? found : []).map((each) => ({
    name: String(each.filename ?? each.name ?? ''),
    type: String(each.mime_type ?? each.mimeType ?? ''),
    bytes: each.size_bytes ?? each.size,
    url: /^https?:\/\//.test(each.download_url) ? each.download_url : null,
  }));
}

function picture(file) {
  const image = made('img', '', { alt: file.name });
  image.addEventListener('error', () => image.remove());
  image.src = file.url;
  return image;
}

/** Cells of a text with quotes as RFC 4180 has them; at most ROWS rows. */
function cells(text, separator) {
  const rows = [[]];
  const cell = new RegExp(`(?:"((?:[^"]|"")*)"|([^${separator}\r\n]*))(${separator}|\r?\n|$)`, 'y');
  while (cell.lastIndex < text.length && rows.length <= ROWS) {
    const found = cell.exec(text);
    if (!found) break;
    rows.at(-1).push(found[1] === undefined ? found[2] : found[1].replaceAll('""', '"'));
    if (found[3] !== separator) rows.push([]);
  }
  return rows.slice(0, ROWS).filter((row) => row.length);
}

async function table(file, place) {
  const answer = await fetch(file.url, { credentials: 'omit', headers: { Range: `bytes=0-${TABLE_BYTES - 1}` } });
  if (!answer.ok) return;
  const node = document.createElement('table');
  for (const row of cells((await answer.text()).slice(0, TABLE_BYTES), TABLES[file.type])) {
    const line = document.createElement('tr');
    line.append(...row.slice(0, COLUMNS).map((value) => made('td', value.slice(0, 200))));
    node.append(line);
  }
  place.append(node);
}

function save(file) {
  const link = { type: 'resource_link', uri: file.url, name: file.name, mimeType: file.type };
  const saving = host.downloadFile ? ask('ui/download-file', { contents: [link] }) : ask('ui/open-link', { url: file.url });
  const refused = () => say(`The host does not allow that. The address is ${file.url}`);
  saving.then((result) => (result?.isError ? refused() : say('')), refused);
}

function show(result) {
  const rows = told(result).map((file) => {
    const row = document.createElement('li');
    const what = made('span', file.name);
    what.append(made('code', [file.type, file.bytes === undefined ? '' : size(file.bytes)].filter(Boolean).join(', ')));
    row.append(what);
    if (!file.url) return row;
    const button = made('button', 'Download', { type: 'button' });
    button.setAttribute('aria-label', `Download ${file.name}`);
    button.addEventListener('click', () => save(file));
    row.append(button);
    const view = document.createElement('div');
    view.className = 'view';
    row.append(view);
    if (PICTURES.includes(file.type)) view.append(picture(file));
    else if (Object.hasOwn(TABLES, file.type)) table(file, view).catch(() => {});
    return row;
  });
  at('list').replaceChildren(...rows);
  if (!rows.length) say('The tool wrote no file.');
}

connect({ 'ui/notifications/tool-result': show });
