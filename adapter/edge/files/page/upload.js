// Chooses, drops, pastes or photographs files, and sends them as one upload.

const form = at('form');
const words = JSON.parse(form.dataset.words);
let terms = {};
let target = '';
let handOver = null;
const chosen = [];
let running = null;
let over = false;

const files = (count) => (count === 1 ? '1 file' : `${count} files`);
function fail(text, detail = '') {
  at('error').replaceChildren(text, ...(detail ? [made('small', detail)] : []));
}

// --- which files ------------------------------------------------------------------------------------------------

function add(more) {
  if (running || over || !more.length) return;
  chosen.push(...more);
  show();
  say(`${files(chosen.length)} chosen.`);
}

function remove(file) {
  chosen.splice(chosen.indexOf(file), 1);
  show();
  say(`${file.name} removed. ${files(chosen.length)} chosen.`);
  at(chosen.length ? 'send' : 'files').focus();
}

function show() {
  const rows = chosen.map((file) => {
    const row = document.createElement('li');
    const button = made('button', 'Remove', { type: 'button', disabled: running !== null });
    button.setAttribute('aria-label', `Remove ${file.name}`);
    button.addEventListener('click', () => remove(file));
    row.append(made('span', `${file.name} (${size(file.size)})`), button);
    return row;
  });
  at('list').replaceChildren(...rows);
  at('list').hidden = !chosen.length;
  at('files').required = !chosen.length;
  fail(fault());
}

/** What speaks against sending these files, before a byte is sent. */
function fault() {
  const large = chosen.find((file) => file.size > terms.file);
  if (large) return `${large.name} has ${size(large.size)}. One file may have ${size(terms.file)}: remove it.`;
  if (chosen.length > terms.files) return `These are ${files(chosen.length)}. One upload takes ${files(terms.files)}.`;
  const total = chosen.reduce((sum, file) => sum + file.size, 0);
  if (terms.total !== null && total > terms.total) return `Together these are ${size(total)}; ${size(terms.total)} fit.`;
  return '';
}

// --- sending ----------------------------------------------------------------------------------------------------

async function digest(file) {
  const bytes = await crypto.subtle.digest('SHA-256', await file.arrayBuffer());
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function filled() {
  const data = new FormData();
  for (const file of chosen) {
    data.append('file', file);
    if (terms.digests) data.append('sha256', await digest(file));
  }
  return data;
}

function busy(request) {
  running = request;
  for (const id of ['files', 'photo', 'send']) at(id).disabled = request !== null;
  at('progress').hidden = at('cancel').hidden = request === null;
  if (request) at('cancel').focus();
}

async function send() {
  const why = fault();
  if (running || over) return undefined;
  if (!chosen.length || why) return fail(why || 'Choose a file first.');
  const request = new XMLHttpRequest();
  busy(request);
  show();
  say(`Uploading ${files(chosen.length)}.`);
  try {
    const data = await filled();
    if (running !== request) return undefined;
    request.open('POST', target);
    request.setRequestHeader('Accept', 'application/json');
    let told = 0;
    request.upload.addEventListener('progress', ({ loaded, total }) => {
      const percent = Math.floor((100 * loaded) / (total || 1));
      at('progress').value = percent;
      // A screen reader reads each of these out.
      if (percent >= told + 25) say(percent < 100 ? `${(told = percent)} percent sent.` : 'Sent. Waiting for the answer.');
    });
    request.addEventListener('load', () => (request.status === 200 ? arrived(request) : refused(request)));
    request.addEventListener('error', () => stop(words[0]));
    request.send(data);
  } catch {
    stop(crypto.subtle ? 'A file could not be read: choose it again.' : words.digests);
  }
  return undefined;
}

function cancel() {
  const request = running;
  busy(null);
  request.abort();
  stop('', 'The upload was cancelled; nothing was kept.');
}

function stop(why, status = '', detail = '') {
  busy(null);
  show();
  fail(why, detail);
  say(status);
  at('send').textContent = 'Try again';
  at('send').focus();
}

function refused(request) {
  let detail = '';
  try {
    detail = String(JSON.parse(request.responseText).detail ?? '').slice(0, 500);
  } catch { /* a proxy's page, not the adapter's answer */ }
  stop(words[request.status] ?? words.other, '', detail);
  if (request.status === 401 || request.status === 404) close();
}

function close() {
  over = true;
  form.hidden = at('note').hidden = true;
}

function arrived(request) {
  const { uploads } = JSON.parse(request.responseText);
  busy(null);
  close();
  fail('');
  at('handles').replaceChildren(...uploads.map(({ filename, upload_handle: handle }) => {
    const row = document.createElement('li');
    const name = made('span', filename);
    name.append(made('code', handle));
    const button = made('button', 'Copy', { type: 'button' });
    button.setAttribute('aria-label', `Copy the handle of ${filename}`);
    button.addEventListener('click', () => copy(handle, button));
    row.append(name, button);
    return row;
  }));
  const lines = uploads.map(({ filename, upload_handle: handle }) => `${filename}: ${handle}`);
  const message = `I have uploaded:\n${lines.join('\n')}`;
  at('all').addEventListener('click', () => copy(message, at('all')));
  at('arrived').textContent = `Done: ${files(uploads.length)} arrived`;
  document.title = at('arrived').textContent;
  at('done').hidden = false;
  at('done').focus();
  say('');
  handOver?.(message);
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages without TLS have no clipboard of this kind.
    const field = made('textarea', text, { readOnly: true });
    document.body.append(field);
    field.select();
    document.execCommand('copy');
    field.remove();
    button.focus();
  }
  say('Copied.');
}

// --- what people do ---------------------------------------------------------------------------------------------

for (const id of ['files', 'photo']) {
  at(id).addEventListener('change', ({ target }) => {
    add([...target.files]);
    target.value = '';
  });
}
// Not the form's own event: frames that may not submit forms have none.
at('send').addEventListener('click', (event) => {
  event.preventDefault();
  send();
});
at('cancel').addEventListener('click', cancel);
document.addEventListener('paste', ({ clipboardData }) => add([...(clipboardData?.files ?? [])]));
document.addEventListener('dragover', (event) => {
  event.preventDefault();
  at('drop').classList.add('over');
});
document.addEventListener('dragleave', () => at('drop').classList.remove('over'));
document.addEventListener('drop', (event) => {
  event.preventDefault();
  at('drop').classList.remove('over');
  const items = [...event.dataTransfer.items].filter(({ kind }) => kind === 'file');
  // A folder has no bytes that could be sent.
  add(items.filter((item) => !item.webkitGetAsEntry?.()?.isDirectory).map((item) => item.getAsFile()));
});
window.addEventListener('beforeunload', (event) => { if (running) event.preventDefault(); });

at('drop').classList.add('picks');
at('camera').hidden = !matchMedia('(pointer: coarse)').matches;

/** Take files from now on for `url`, within `limits`, of which `left` says for how many seconds. */
function begin(limits, url) {
  [terms, target] = [limits, url];
  at('files').multiple = terms.files > 1;
  at('until').textContent = new Date(Date.now() + terms.left * 1000).toLocaleTimeString([], { timeStyle: 'short' });
  setTimeout(() => {
    if (running || over) return;
    close();
    fail(words[401]);
  }, Math.min(terms.left * 1000, 2 ** 31 - 1));
}

if (form.dataset.terms) begin(JSON.parse(form.dataset.terms), location.href);
