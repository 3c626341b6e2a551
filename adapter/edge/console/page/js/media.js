// Pictures and sounds out of results. A type counts only when it is on the list, bytes only when they are base64.

import { button, h } from './dom.js';
import { bytes, plain } from './format.js';
import { download } from './leaving.js';

const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/avif']);
const SOUNDS = new Set([
  'audio/mpeg',
  'audio/mp4',
  'audio/ogg',
  'audio/wav',
  'audio/x-wav',
  'audio/webm',
  'audio/flac',
  'audio/aac',
]);

/** `image/PNG; a=b` → `image/png`; what is no text is no type. */
export const essence = (type) => (typeof type === 'string' ? type.split(';')[0].trim().toLowerCase() : '');

export const isPicture = (type) => PICTURES.has(essence(type));
export const isSound = (type) => SOUNDS.has(essence(type));

/** The bytes of base64, or null: the text is something else. */
export function decoded(text) {
  if (typeof text !== 'string' || text.length % 4 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return null;
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    return null;
  }
}

/** A picture or a sound whose bytes came in base64; a sentence where that cannot be. */
export function inline(type, data, name) {
  const content = decoded(data);
  if (content === null) return h('p', { class: 'notice' }, 'The result has media that cannot be decoded.');
  const blob = new Blob([content], {
    type: isPicture(type) || isSound(type) ? essence(type) : 'application/octet-stream',
  });
  if (isPicture(type)) return picture(`data:${essence(type)};base64,${data}`, blob, name);
  if (isSound(type)) return sound(blob, name);
  return h(
    'div',
    { class: 'card file' },
    h('span', { class: 'grow' }, `${plain(type || 'Unknown type', 60)}, ${bytes(content.length)}: not shown here`),
    saving(blob, name),
  );
}

/** A blob shown by its type where that is safe; null where it can only be downloaded, as its card lets the reader do. */
export function shown(blob, name) {
  if (isPicture(blob.type)) return picture(URL.createObjectURL(blob), blob, name, null);
  if (isSound(blob.type)) return sound(blob, name, null);
  return null;
}

function picture(url, blob, name, save = saving(blob, name)) {
  const size = h('span', { class: 'told' }, `${essence(blob.type)} · ${bytes(blob.size)}`);
  const image = h('img', {
    src: url,
    alt: name ? `Picture: ${plain(name)}` : 'Picture in the result',
    loading: 'lazy',
    decoding: 'async',
    on: {
      load: () => {
        size.textContent = `${essence(blob.type)} · ${image.naturalWidth} × ${image.naturalHeight} · ${bytes(blob.size)}`;
      },
      error: () => {
        size.textContent = 'The browser cannot show this picture.';
      },
    },
  });
  return h('figure', { class: 'picture' }, image, h('figcaption', {}, size, save));
}

function sound(blob, name, save = saving(blob, name)) {
  return h(
    'figure',
    { class: 'sound' },
    h('audio', { controls: true, src: URL.createObjectURL(blob), 'aria-label': plain(name ?? 'Sound in the result') }),
    h('figcaption', {}, h('span', { class: 'told' }, `${essence(blob.type)} · ${bytes(blob.size)}`), save),
  );
}

const saving = (blob, name) =>
  button('Download', () => download(blob, name || `result.${essence(blob.type).split('/')[1] || 'bin'}`), {
    look: 'small',
    picture: 'down',
  });
