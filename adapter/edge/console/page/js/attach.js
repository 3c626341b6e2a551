// Attaching a file: the server's helper tool names an upload URL, the browser sends the file there with its progress
// shown, and the handle it gets becomes the argument.

import { Refused, base, post, reason, refused } from './api.js';
import { announce, button, fill, h } from './dom.js';
import { bytes } from './format.js';
import { toolPath } from './world.js';

/** How files get to one server: by its helper tool. */
export class Helper {
  constructor(server, tool) {
    Object.assign(this, { server, tool });
  }

  /** Whether a part of a tool's definition tells of it. */
  isNamed(part) {
    return JSON.stringify(part ?? null).includes(this.tool);
  }

  /** Uploads a file; its handle. `progress(sent, total)` is told of bytes. Raises Refused, AbortError. */
  async upload(file, progress, signal) {
    const offer = offered(await post(`${toolPath(this.server, this.tool)}/call`, {}, { signal }));
    const url = new URL(offer.upload_url, base);
    if (url.origin !== base.origin) {
      throw new Refused(
        0,
        `Uploads go to ${url.origin}, which is not the origin of this page. Open the console under that address.`,
      );
    }
    if (file.size > (offer.max_file_bytes ?? Infinity)) {
      throw new Refused(413, `${file.name} has ${bytes(file.size)}; the maximum is ${bytes(offer.max_file_bytes)}.`);
    }
    const form = new FormData();
    form.append(offer.field_name ?? 'file', file, file.name);
    if (offer.sha256_required) form.append(offer.sha256_field_name ?? 'sha256', await digest(file));
    const answer = await sent(url, form, progress, signal);
    if (typeof answer?.upload_handle !== 'string') throw new Refused(0, 'The answer to the upload has no handle.');
    return answer.upload_handle;
  }
}

/** What the helper's result offers: its structured content, or the same as text. */
function offered(result) {
  const { structuredContent, content } = result ?? {};
  if (typeof structuredContent?.upload_url === 'string') return structuredContent;
  for (const item of content ?? []) {
    try {
      const read = JSON.parse(item.text);
      if (typeof read?.upload_url === 'string') return read;
    } catch {
      // Other texts may stand beside it.
    }
  }
  throw new Refused(0, 'The helper tool returned no upload URL.');
}

async function digest(file) {
  if (!crypto.subtle)
    throw new Refused(0, 'This adapter requires digests of files. Browsers can compute them only on https and localhost.');
  const sum = await crypto.subtle.digest('SHA-256', await file.arrayBuffer());
  return [...new Uint8Array(sum)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** fetch tells nothing of what was sent so far; XMLHttpRequest does. */
function sent(url, form, progress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('POST', url);
    request.responseType = 'json';
    request.upload.addEventListener('progress', (event) => progress(event.loaded, event.total));
    request.addEventListener('load', () =>
      request.status === 200 ? resolve(request.response) : reject(refused(request.status, request.response)),
    );
    request.addEventListener('error', () => reject(new TypeError('unreachable')));
    request.addEventListener('abort', () => reject(new DOMException('cancelled', 'AbortError')));
    signal.addEventListener('abort', () => request.abort());
    request.send(form);
  });
}

/** The button that attaches a file to a field, and the place where its progress shows. `take(handle)` is told. */
export function attachment(helper, take) {
  const chooser = h('input', {
    type: 'file',
    class: 'unseen',
    tabindex: '-1',
    'aria-hidden': 'true',
    on: { change: start },
  });
  const attach = button('', () => chooser.click(), {
    look: 'quiet icon clip',
    picture: 'clip',
    'aria-label': 'Attach a file',
    title: 'Attach a file',
  });
  const progress = h('div', { class: 'upload', hidden: true });

  async function start() {
    const [file] = chooser.files;
    if (!file) return;
    chooser.value = '';
    const stop = new AbortController();
    const bar = h('progress', { max: file.size || 1, value: 0, 'aria-label': `Uploading ${file.name}` });
    const told = h('span', { class: 'told' }, `${file.name} · 0 of ${bytes(file.size)}`);
    fill(
      progress,
      bar,
      told,
      button('Cancel', () => stop.abort(), { look: 'small' }),
    );
    progress.hidden = false;
    attach.disabled = true;
    try {
      const handle = await helper.upload(
        file,
        (loaded, total) => {
          [bar.max, bar.value] = [total || 1, loaded];
          told.textContent = `${file.name} · ${bytes(Math.min(loaded, file.size))} of ${bytes(file.size)}`;
        },
        stop.signal,
      );
      take(handle);
      fill(progress, h('span', { class: 'told good' }, `${file.name} · ${bytes(file.size)} uploaded`));
      announce(`${file.name} is uploaded.`);
    } catch (failure) {
      const said = failure.name === 'AbortError' ? 'Upload cancelled.' : reason(failure);
      fill(progress, h('span', { class: 'told bad', role: 'alert' }, said));
    } finally {
      attach.disabled = false;
    }
  }

  return { button: h('span', {}, chooser, attach), progress };
}
