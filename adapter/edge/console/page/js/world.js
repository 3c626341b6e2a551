// What the page knows: who reads it, the servers and their catalogues. Views ask here and are told of changes.

import { Refused, base, get, hasToken, post } from './api.js';
import { illFirst } from './condition.js';

/** Who reads the page and what they may do; `hosted` is false where a host serves its own tools without servers. */
export const me = {
  principal: null,
  operator: false,
  title: 'MCP Tool Explorer',
  allow_execute: false,
  version: '',
  auth: false,
  hosted: true,
  /** Whether readers can sign in here, null before that is known; and whether this one has. */
  signIn: null,
  signedIn: false,
  grants: false,
};

const POLL = 5000;
const listeners = new Set();
const catalogues = new Map();
let servers = null;
let failure = null;

/** Calls `act` when servers or the reader changed, until `signal` is aborted; also at once when they are known. */
export function watch(act, signal) {
  listeners.add(act);
  signal?.addEventListener('abort', () => listeners.delete(act));
  if (servers || failure) act();
}

const tell = () => listeners.forEach((act) => act());

/** The servers, or null before they are known. */
export const fleet = () => servers;

/** Why the servers are not known, or null. */
export const trouble = () => failure;

export const server = (id) => servers?.find((one) => one.id === id) ?? null;

/** The path of a server's tools below the page's. */
const toolsPath = (id) => (me.hosted ? `${encodeURIComponent(id)}/tools` : 'tools');

/** The path of one tool; its name may hold slashes. */
export const toolPath = (id, name) => `${toolsPath(id)}/${encodeURIComponent(name)}`;

/** Asks again who reads and what there is; begins anew with other credentials. */
export async function meet() {
  catalogues.clear();
  try {
    Object.assign(me, { grants: false }, await get('-/me'), { hosted: true });
  } catch (refusal) {
    if (!(refusal instanceof Refused)) throw refusal;
    if (refusal.status === 404) await meetHost();
    // Who has signed in and may see nothing is refused, too, and can still sign out.
    else if (![401, 403].includes(refusal.status)) throw refusal;
    else me.auth = true;
  }
  if (me.auth && me.hosted) await meetBrowser();
  else me.signIn = false;
  await refresh();
}

/** Asks whether people can sign in here with their browser, and whether this one has. */
async function meetBrowser() {
  try {
    const { principal } = await get('-/browser');
    Object.assign(me, { signIn: true, signedIn: principal !== null && !hasToken(), principal: me.principal ?? principal });
  } catch (refusal) {
    if (!(refusal instanceof Refused)) throw refusal;
    Object.assign(me, { signIn: false, signedIn: false });
  }
}

/** Where a reader signs in and returns to this view. */
export const signInPath = () => new URL(`-/sign-in?to=${encodeURIComponent(location.hash)}`, base).href;

/** Signs the reader out, and begins anew. */
export async function signOut() {
  await post('-/sign-out', {});
  Object.assign(me, { principal: null, operator: false, signedIn: false });
  await meet();
}

/** A host that serves its own tools tells title and permission by `meta`, or not at all. */
async function meetHost() {
  me.hosted = false;
  try {
    Object.assign(me, await get('meta'));
  } catch (refusal) {
    if (!(refusal instanceof Refused)) throw refusal;
    me.allow_execute = true; // It says no itself, where a call is refused.
  }
}

/** Asks for the servers once; `watch` tells of the answer. */
export async function refresh() {
  try {
    const told = me.hosted ? illFirst(await get('-/servers')) : [hostItself()];
    if (!failure && JSON.stringify(told) === JSON.stringify(servers)) return;
    [servers, failure] = [told, null];
  } catch (refusal) {
    if (failure && failure.message === refusal.message) return;
    failure = refusal;
  }
  tell();
}

function hostItself() {
  return { id: 'tools', status: 'ok', history: [], missing: [], drift: 0, remembered: false };
}

/** Asks again and again while the page is seen. */
export function poll() {
  setInterval(() => {
    if (!document.hidden) refresh();
  }, POLL);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) refresh();
  });
}

/** The tools of a server, from memory unless `anew`. Raises Refused. */
export function tools(id, { anew = false } = {}) {
  if (anew || !catalogues.has(id)) {
    const asked = get(toolsPath(id));
    catalogues.set(id, asked);
    asked.catch(() => catalogues.delete(id));
  }
  return catalogues.get(id);
}
