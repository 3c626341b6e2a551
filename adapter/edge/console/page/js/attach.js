// Attaching a file: the server's helper tool names an upload URL, the browser sends the file there with its progress
// shown, and the handle it gets becomes the argument.

import { Refused, base, get, post, refused } from './api.js';
import { bytes } from './format.js';
import { toolPath } from './world.js';

/** How files get to one server: by its helper tool. */
export class Helper {
  constructor(server, tool) {
    Object.assign(this, { server, tool, known: new Map(), limit: null });
  }

  /** The reader's own files that the tools of the server take, newest first; also learns how large one may be. */
  async recent(signal) {
    const { limit = null, files = [] } = await get(`${encodeURIComponent(this.server)}/files`, { signal });
    this.limit = limit;
    for (const file of files) this.known.set(file.uri, file);
    return files;
  }

  /** Why a file cannot be uploaded, before anything is sent; null where it can. */
  refusal(file) {
    if (this.limit === null || file.size <= this.limit) return null;
    return `${file.name} has ${bytes(file.size)}; a file may have at most ${bytes(this.limit)}.`;
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
    this.known.set(answer.upload_handle, { kind: 'upload', filename: file.name, size: file.size });
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

const OF_ARGUMENT = ['Takes an ', ' URI.'];
const OF_TOOL = 'To give it a local file, first upload the file to the URL from ';
const OF_RESULT = 'A file it produces comes back as an ';

/** A description without what the adapter added to it for models; a person uploads in the form. */
export function forPeople(text, helper) {
  let said = text;
  if (helper) {
    const tool = said.lastIndexOf(`${OF_TOOL}${helper}, `);
    if (tool >= 0) said = `${said.slice(0, tool)}${said.slice(tool).includes(OF_RESULT) ? OF_RESULT : ''}`;
    const argument = said.lastIndexOf(OF_ARGUMENT[0]);
    if (argument >= 0 && said.includes(` handle from ${helper}, `, argument) && said.endsWith(OF_ARGUMENT[1]))
      said = said.slice(0, argument);
  }
  const result = said.lastIndexOf(OF_RESULT);
  // Nothing of the server's own stands behind it.
  if (result >= 0 && said.length - result < 200) said = `${said.slice(0, result)}Files that it makes are in the result.`;
  return said.trim();
}
