// Files that the adapter keeps for the reader: what each owner has used of its quota, and when what expires.

import { get } from './api.js';
import { CHANGED, expiry, fileCard, tick } from './artifact.js';
import { h, refill } from './dom.js';
import { bytes, count, plain } from './format.js';
import { badge, every, heading, loading, nothing, waiting } from './pieces.js';

const POLL = 10_000;

export function showFiles({ signal }) {
  const place = h('div', { class: 'stack' }, waiting());
  let last = '';
  const load = () =>
    loading(place, async () => {
      const told = await get('-/files', { signal });
      const text = JSON.stringify(told);
      // A preview that is open stays: what is the same is left alone.
      if (text === last) {
        tick(place);
        return;
      }
      last = text;
      refill(
        place,
        told.scopes?.length
          ? told.scopes.map(scope)
          : nothing('No files', 'Uploads and artifacts of this tab appear here, with their remaining time.'),
      );
    });
  every(POLL, signal, load);

  return h(
    'section',
    { class: 'view' },
    heading('Files', 'Uploads and artifacts that the adapter keeps until they expire.'),
    place,
  );
}

function scope({ scope: name, used, quota, files = [], count: others }) {
  const share = quota ? Math.min(100, (100 * used) / quota) : 0;
  const level = h('div', { class: share > 90 ? 'level bad' : 'level' });
  level.style.width = `${share}%`;
  const uploads = files.filter((file) => file.kind === 'upload');
  const artifacts = files.filter((file) => file.kind !== 'upload');
  return h(
    'article',
    { class: 'card scope' },
    h(
      'header',
      { class: 'split' },
      h(
        'h2',
        { title: name },
        files.length ? `Files of ${[...new Set(files.map((file) => file.server))].join(', ')} ` : 'Files of others ',
        h('span', { class: 'told mono' }, plain(name, 12)),
      ),
      h('span', { class: 'told' }, quota ? `${bytes(used)} of ${bytes(quota)}` : `${bytes(used)}, no quota`),
    ),
    quota
      ? h(
          'div',
          {
            class: 'gauge',
            role: 'meter',
            'aria-label': 'Quota used',
            'aria-valuemin': 0,
            'aria-valuemax': 100,
            'aria-valuenow': Math.round(share),
          },
          level,
        )
      : null,
    files.length
      ? null
      : h(
          'p',
          { class: 'told' },
          others ? `${count(others, 'file')} of others` : 'Names of others’ files are not shown.',
        ),
    shelf('Uploads', uploads),
    shelf('Artifacts', artifacts),
  );
}

function shelf(title, files) {
  if (!files.length) return null;
  return h(
    'section',
    { class: 'shelf' },
    h('h3', {}, title, ' ', badge(String(files.length))),
    files.map((file) => (file.kind === 'upload' ? upload(file) : fileCard(file.server, file))),
  );
}

function upload(file) {
  return h(
    'div',
    { class: 'card file-card' },
    h(
      'div',
      { class: 'file' },
      h(
        'div',
        { class: 'grow' },
        h('div', { class: 'name' }, plain(file.filename)),
        h(
          'div',
          { class: 'told' },
          [file.media_type, bytes(file.size), file.server, file.changed ? CHANGED : null]
            .filter(Boolean)
            .map((one) => plain(one, 60))
            .join(' · '),
        ),
      ),
      file.expires_at ? h('span', { class: 'told' }, expiry(file.expires_at)) : badge('kept'),
    ),
  );
}
