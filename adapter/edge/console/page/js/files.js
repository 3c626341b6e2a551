// Fields that take files: a place to drop one or to choose it, the files that are there already, and a chip for what was
// taken. The value is a handle, which people need not see.

import { reason } from './api.js';
import { announce, button, fill, h, icon } from './dom.js';
import { bytes, plain, relative } from './format.js';

const HANDLE = /^[a-z][a-z0-9+.-]{0,30}:\/\/\S{1,1024}$/i;
const MOST_AT_ONCE = 20;

/** A file that misses its field would replace the page, and with it what was filled in. */
for (const name of ['dragover', 'drop'])
  addEventListener(name, (event) => {
    if (hasFiles(event)) event.preventDefault();
  });

const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes('Files');

/**
 * The control of a text (`control`, in `box`) that may be a file. `sure`: nothing but a file makes sense here.
 */
export function fileControl(control, box, { name, around, sure }) {
  const { helper, changed } = around;
  const shown = plain(name, 100);
  const chip = h('div', { class: 'chip', role: 'group', hidden: true });
  const progress = h('div', { class: 'upload', hidden: true });
  const limit = h('span', { class: 'told' });
  const { chooser, attach } = choosing(`Attach a file to ${shown}`, sure ? 'Attach a file' : '', ([file]) => upload(file));
  const recent = recentFiles(helper, shown, (uri) => take(uri));
  const entry = h(
    'div',
    { class: sure ? 'drop' : 'with-clip' },
    box,
    attach,
    chooser,
    sure ? [recent, limit] : null,
  );
  const node = dropping(h('div', { class: 'file-field' }, chip, entry, progress), ([file]) => upload(file));
  let stop = null;
  if (sure)
    learned(helper).then(() => {
      limit.textContent = hint(helper, 'Drop a file here, or attach one');
      draw();
    });
  if (sure) control.focusable.placeholder = 'or paste the URI of a file';

  function take(uri) {
    control.write(uri);
    draw();
    changed();
    announce(`${named(uri)} is chosen for ${shown}.`);
    if (!chip.hidden) chip.querySelector('button').focus();
  }

  function remove() {
    control.write(undefined);
    fill(progress);
    progress.hidden = true;
    draw();
    changed();
    announce(`The file of ${shown} was removed.`);
    attach.focus();
  }

  const facts = (uri) => helper.known.get(uri);
  const named = (uri) => plain(facts(uri)?.filename ?? 'A file', 200);

  function draw() {
    const value = control.read();
    const is = typeof value === 'string' && (helper.known.has(value) || (sure && HANDLE.test(value)));
    chip.hidden = !is;
    entry.hidden = is;
    if (!is) return;
    const file = facts(value);
    const about = file ? `${bytes(file.size)} · ${file.kind === 'artifact' ? 'made by a tool' : 'uploaded'}` : plain(value, 60);
    chip.setAttribute('aria-label', `${shown}: ${named(value)}`);
    fill(
      chip,
      icon('files'),
      h('span', { class: 'grow' }, h('span', { class: 'name' }, named(value)), ' ', h('span', { class: 'told' }, about)),
      button('', remove, { look: 'quiet icon', picture: 'cross', 'aria-label': `Remove ${named(value)} from ${shown}` }),
    );
  }

  async function upload(file) {
    if (!file || stop) return;
    stop = new AbortController();
    const focused = node.contains(document.activeElement);
    try {
      await learned(helper);
      const uri = await sending(helper, file, progress, stop);
      control.write(uri);
      draw();
      changed();
      announce(`${file.name} is uploaded.`);
      if (focused) chip.querySelector('button')?.focus();
    } catch (failure) {
      const said = failure.name === 'AbortError' ? 'Upload cancelled.' : reason(failure);
      progress.hidden = false;
      fill(progress, h('span', { class: 'told bad', role: 'alert' }, said));
    } finally {
      stop = null;
    }
  }

  return {
    ...control,
    node,
    upload,
    manner: sure ? 'file' : null,
    write(value) {
      const fits = control.write(value);
      draw();
      return fits;
    },
    focus: () => (chip.hidden ? control.focusable.focus() : chip.querySelector('button').focus()),
  };
}

/** A place for several files of a list; `take(files)` is told of those that were dropped or chosen. */
export function dropZone(helper, name, take) {
  const { chooser, attach } = choosing(`Attach files to ${plain(name, 100)}`, 'Attach files', taking, { multiple: true });
  const told = h('span', { class: 'told' });
  learned(helper).then(() => {
    told.textContent = hint(helper, 'Drop files here, or attach them');
  });

  function taking(files) {
    take(files.slice(0, MOST_AT_ONCE));
    if (files.length > MOST_AT_ONCE) told.textContent = `Only the first ${MOST_AT_ONCE} were taken.`;
  }

  return dropping(h('div', { class: 'drop' }, attach, chooser, told), taking);
}

/** The file goes up with its bar; its handle. Raises Refused, AbortError. */
async function sending(helper, file, place, stop) {
  const refusal = helper.refusal(file);
  if (refusal) throw new Error(refusal);
  const bar = h('progress', { max: file.size || 1, value: 0, 'aria-label': `Uploading ${file.name}` });
  const told = h('span', { class: 'told' }, `${file.name} · 0 of ${bytes(file.size)}`);
  fill(
    place,
    bar,
    told,
    button('Cancel', () => stop.abort(), { look: 'small' }),
  );
  place.hidden = false;
  const uri = await helper.upload(
    file,
    (loaded, total) => {
      [bar.max, bar.value] = [total || 1, loaded];
      told.textContent = `${file.name} · ${bytes(Math.min(loaded, file.size))} of ${bytes(file.size)}`;
    },
    stop.signal,
  );
  fill(place);
  place.hidden = true;
  return uri;
}

/** What may be uploaded, asked once for each form. */
function learned(helper) {
  helper.learning ??= helper.recent().catch(() => []);
  return helper.learning;
}

const hint = (helper, words) =>
  helper.limit === null ? `${words}.` : `${words}. A file may have at most ${bytes(helper.limit)}.`;

function choosing(label, text, take, more = {}) {
  const chooser = h('input', {
    type: 'file',
    class: 'unseen',
    tabindex: '-1',
    'aria-hidden': 'true',
    ...more,
    on: {
      change() {
        const files = [...chooser.files];
        chooser.value = '';
        if (files.length) take(files);
      },
    },
  });
  const attach = button(text, () => chooser.click(), {
    look: text ? 'small' : 'quiet icon clip',
    picture: 'clip',
    'aria-label': label,
    title: label,
  });
  return { chooser, attach };
}

/** `node`, which takes files that are dropped on it. */
function dropping(node, take) {
  let inside = 0;
  const over = (by) => {
    inside = Math.max(0, by === 0 ? 0 : inside + by);
    node.classList.toggle('over', inside > 0);
  };
  node.addEventListener('dragenter', (event) => hasFiles(event) && over(1));
  node.addEventListener('dragleave', (event) => hasFiles(event) && over(-1));
  node.addEventListener('dragover', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = 'copy';
  });
  node.addEventListener('drop', (event) => {
    const files = [...(event.dataTransfer?.files ?? [])];
    over(0);
    if (!files.length) return;
    event.preventDefault();
    event.stopPropagation();
    take(files);
  });
  return node;
}

/** A choice among what was uploaded and what tools made, read when it is opened. */
function recentFiles(helper, name, take) {
  const first = () => h('option', { value: '' }, 'Recent files…');
  const box = h(
    'select',
    {
      class: 'recent',
      'aria-label': `Recent files for ${name}`,
      on: {
        focus: read,
        pointerdown: read,
        change() {
          const uri = box.value;
          box.value = '';
          if (uri) take(uri);
        },
      },
    },
    first(),
  );
  let reading = false;

  async function read() {
    if (reading) return;
    reading = true;
    try {
      const files = await helper.recent();
      const part = (label, kind) => {
        const some = files.filter((file) => file.kind === kind);
        return some.length ? h('optgroup', { label }, some.map(option)) : null;
      };
      const parts = [part('Uploads', 'upload'), part('Made by tools', 'artifact')].filter(Boolean);
      fill(box, first(), parts.length ? parts : h('option', { disabled: true }, 'There are none yet'));
    } catch (failure) {
      fill(box, first(), h('option', { disabled: true }, plain(reason(failure), 100)));
    } finally {
      reading = false;
    }
  }

  return box;
}

const option = (file) =>
  h(
    'option',
    { value: file.uri },
    [plain(file.filename, 80), bytes(file.size), file.expires_at ? `expires ${relative(file.expires_at)}` : null]
      .filter(Boolean)
      .join(' · '),
  );
