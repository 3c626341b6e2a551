// Where the reader is: the fragment of the address, so that back, forward and bookmarks work under any mount.

import { base } from './api.js';

/** The fragment for a place: `link('server', 'demo', 'tools', 'a/b')` → `#/server/demo/tools/a%2Fb`. */
export const link = (...parts) => `#/${parts.map(encodeURIComponent).join('/')}`;

/** The parts of the place that the address names; the page of a server opens at that server. */
export function place() {
  const parts = location.hash.replace(/^#\/?/, '').split('/').filter(Boolean).map(decoded);
  if (parts.length) return parts;
  const behind = decoded(location.pathname.slice(base.pathname.length));
  return behind ? ['server', behind] : ['servers'];
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const go = (...parts) => {
  location.hash = link(...parts);
};
