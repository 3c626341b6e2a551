// A file behind a link of a result or in the list of files: its preview, its download, its expiry.

import { Refused, base, reason, refused, send } from './api.js';
import { button, fill, h, icon } from './dom.js';
import { bytes, instant, moment, plain, relative } from './format.js';
import { download } from './leaving.js';
import { longText } from './longtext.js';
import { essence, isPicture, isSound, shown } from './media.js';
import { me } from './world.js';

const LARGEST_PREVIEW = 25 * 1024 * 1024;

/** A resource of a server, read through the adapter. Raises Refused. */
export async function fetched(server, uri, signal) {
  const response = await send(`${encodeURIComponent(server)}/resources?uri=${encodeURIComponent(uri)}`, {
    accept: '*/*',
    signal,
  });
  if (!response.ok) throw refused(response.status, await response.json().catch(() => null));
  return response.blob();
}

/** What is said of a file that something other than the adapter has changed: nobody gets it any more. */
export const CHANGED = 'changed on the disk, given to nobody';

/**
 * A card for `{uri, filename, media_type, size, expires_at, changed, download_url}` of a server, all but `uri` optional.
 * Only files the adapter holds, or resources it can read, have buttons that work; others say why not.
 */
export function fileCard(server, file, { open = false } = {}) {
  const name = plain(file.filename || file.uri.split('/').pop() || file.uri);
  const place = h('div', { class: 'preview' });
  const facts = [
    essence(file.media_type),
    file.size === undefined || file.size === null ? null : bytes(file.size),
    file.changed ? CHANGED : null,
  ].filter(Boolean);
  const look = button('Preview', preview, { look: 'small', picture: 'eye', 'aria-label': `Preview ${name}` });
  const large = (file.size ?? 0) > LARGEST_PREVIEW;
  const node = h(
    'div',
    { class: 'card file-card' },
    h(
      'div',
      { class: 'file' },
      icon('files'),
      h(
        'div',
        { class: 'grow' },
        h('div', { class: 'name', title: plain(file.uri, 500) }, name),
        h(
          'div',
          { class: 'told' },
          facts.join(' · '),
          file.expires_at ? [facts.length ? ' · ' : null, expiry(file.expires_at)] : null,
        ),
      ),
      me.hosted && !large ? look : null,
      saver(server, file, name),
    ),
    file.description ? h('p', { class: 'hint' }, String(file.description).slice(0, 1000)) : null,
    place,
  );
  if (open && me.hosted && !large && (isPicture(file.media_type) || isSound(file.media_type))) preview();

  async function preview() {
    look.disabled = true;
    fill(place, h('p', { class: 'told', role: 'status' }, 'Reading…'));
    try {
      const blob = await fetched(server, file.uri);
      fill(
        place,
        (await view(blob, name)) ??
          h(
            'p',
            { class: 'notice' },
            `Files of type ${plain(blob.type || 'unknown', 60)} cannot be shown here; download the file.`,
          ),
      );
      look.remove();
    } catch (failure) {
      fill(place, h('p', { class: 'notice', role: 'alert' }, why(failure)));
      look.disabled = false;
    }
  }

  return node;
}

/** When a file goes; `tick` keeps it true. */
export function expiry(at) {
  return h('span', { class: 'expiry', title: moment(at), 'data-expires': at }, `expires ${relative(at)}`);
}

/** Says anew when the files below `node` go. */
export function tick(node) {
  for (const one of node.querySelectorAll('[data-expires]')) {
    const at = instant(Number(one.dataset.expires) || one.dataset.expires);
    one.textContent = at !== null && at * 1000 < Date.now() ? 'expired' : `expires ${relative(at)}`;
  }
}

async function view(blob, name) {
  const type = essence(blob.type);
  if (type.startsWith('text/') || type === 'application/json') return longText(await blob.text(), { filename: name });
  return shown(blob, name);
}

function saver(server, file, name) {
  const link = near(file.download_url);
  // A signed link of the adapter's own streams to the disk; all else goes through memory. Some browsers ask for it as
  // for a page that is opened, so it says that the file itself is wanted.
  if (link)
    return h(
      'a',
      { class: 'button small', href: `${link}&download=1`, download: name, rel: 'noopener' },
      icon('down'),
      h('span', {}, 'Download'),
    );
  if (!me.hosted) return null;
  const save = button(
    'Download',
    async () => {
      save.disabled = true;
      try {
        download(await fetched(server, file.uri), name);
      } catch (failure) {
        save.after(h('span', { class: 'told bad', role: 'alert' }, why(failure)));
      } finally {
        save.disabled = false;
      }
    },
    { look: 'small', picture: 'down', 'aria-label': `Download ${name}` },
  );
  return save;
}

function near(text) {
  try {
    const url = new URL(text);
    return url.origin === base.origin ? url.href : null;
  } catch {
    return null;
  }
}

const why = (failure) =>
  failure instanceof Refused && failure.status === 404
    ? 'It does not exist any more.'
    : reason(failure);
