// Small parts that several views show in the same way.

import { reason } from './api.js';
import { condition } from './condition.js';
import { button, fill, h, icon } from './dom.js';
import { plain } from './format.js';
import { copyButton } from './leaving.js';
import { me, signInPath } from './world.js';

const LONGEST = 4000;

/** The dot of a server's condition, in words for those who do not see it. */
export function dot(server) {
  const { look, words } = condition(server);
  return h('span', { class: `dot ${look}`, role: 'img', 'aria-label': words });
}

/** A small label; `look` is one of ok, warn, bad, accent, or none. */
export const badge = (text, look = '', title = null) => h('span', { class: `badge ${look}`, title }, text);

/** What the annotations of a tool claim: text, look and term of each. */
export function claimsOf(annotations) {
  const claims = annotations && typeof annotations === 'object' ? annotations : {};
  return [
    claims.readOnlyHint === true ? ['read only', 'ok', 'readOnlyHint: the server says that it changes nothing'] : null,
    claims.destructiveHint === true && claims.readOnlyHint !== true
      ? ['destructive', 'bad', 'destructiveHint: it may delete or overwrite']
      : null,
    claims.idempotentHint === true
      ? ['repeatable', '', 'idempotentHint: calling it again changes nothing more']
      : null,
    claims.openWorldHint === false
      ? ['closed world', '', 'openWorldHint: false: it accesses nothing outside its server']
      : null,
    claims.openWorldHint === true ? ['open world', 'warn', 'openWorldHint: it may access other systems'] : null,
  ].filter(Boolean);
}

/** The same as badges, for a row of a list. */
export const annotationBadges = (annotations) => claimsOf(annotations).map((claim) => badge(...claim));

/** What a tool is called for people, beside its name (MCP 2025-06-18, "BaseMetadata"); empty where it says nothing new. */
export function titleOf(tool) {
  const title = tool.title ?? tool.annotations?.title;
  return typeof title === 'string' && title !== tool.name ? plain(title, 120) : '';
}

/** The head of a view. */
export const heading = (title, about, ...actions) =>
  h(
    'header',
    { class: 'view-head' },
    h('div', { class: 'grow' }, h('h1', { tabindex: '-1' }, title), about ? h('p', { class: 'about' }, about) : null),
    actions.length ? h('div', { class: 'actions' }, actions) : null,
  );

/** What stands where there is nothing to show; `back` is where else to go. */
export const nothing = (title, about, back = null) =>
  h(
    'div',
    { class: 'nothing' },
    h('p', { class: 'nothing-title' }, title),
    about ? h('p', {}, about) : null,
    back ? h('p', {}, h('a', { href: back }, 'To the servers')) : null,
  );

/** A failure, with a way to go on. */
export function failed(failure, again) {
  const stranger = failure.status === 401;
  if (stranger && me.signIn) return signIn();
  return h(
    'div',
    { class: 'nothing', role: 'alert' },
    icon('warn'),
    h(
      'p',
      { class: 'nothing-title' },
      { 401: 'A token is needed', 403: 'Access denied', 404: 'Not found' }[failure.status] ?? 'The request failed',
    ),
    h('p', {}, stranger ? 'Enter your bearer token above (the key symbol).' : withLinks(reason(failure))),
    again ? button('Try again', again, { look: 'small', picture: 'reload' }) : null,
  );
}

const signIn = () =>
  h(
    'div',
    { class: 'nothing', role: 'alert' },
    h('p', { class: 'nothing-title' }, 'Sign in to go on'),
    h('p', {}, signInLink('button primary')),
  );

/** The way to the issuer, and back to the view of that moment. */
export const signInLink = (look) =>
  h(
    'a',
    {
      class: look,
      href: signInPath(),
      on: {
        click: ({ currentTarget }) => {
          currentTarget.href = signInPath();
        },
      },
    },
    'Sign in',
  );

/** A sentence whose addresses can be opened: those of https, and of the page's own host. All of an address is shown. */
export const withLinks = (sentence) =>
  sentence.slice(0, LONGEST).split(/(https?:\/\/[^\s<>"'()]{0,2000}[^\s<>"'().,;:!?])/).map((part, at) => {
    const url = at % 2 && URL.canParse(part) ? new URL(part) : null;
    if (!url || (url.protocol !== 'https:' && url.host !== location.host) || url.username || url.password) return part;
    return h('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer' }, part);
  });

export const waiting = (text = 'Loading…') => h('p', { class: 'waiting', role: 'status' }, text);

/** `act()` with its failure in `place`, and a way to try again there. */
export async function loading(place, act) {
  try {
    await act();
  } catch (failure) {
    if (failure.name !== 'AbortError') fill(place, failed(failure, () => loading(place, act)));
  }
}

/** A part that scrolls sideways by itself. */
export const scrolling = (label, ...children) =>
  h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label }, children);

/** A table with these heads, of which an empty one is none. */
export const grid = (label, heads, body) =>
  scrolling(
    label,
    h(
      'table',
      {},
      h('thead', {}, h('tr', {}, heads.map((head) => (head ? h('th', { scope: 'col' }, head) : h('td', {}))))),
      body,
    ),
  );

/** A headline beside a button that copies `text()`. */
export const copyHead = (title, text) => h('div', { class: 'split' }, title, copyButton('Copy', text));

/** Calls `act` every `ms` while the page is seen, until `signal` is aborted; the first time at once. */
export function every(ms, signal, act) {
  act();
  const timer = setInterval(() => {
    if (!document.hidden) act();
  }, ms);
  signal.addEventListener('abort', () => clearInterval(timer));
}
