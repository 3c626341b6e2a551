// What stands around every view: the rail, the theme, the token, the keys that work everywhere.

import { forget } from './again.js';
import { hasToken, onUnauthorized, useToken } from './api.js';
import { announce, arrows, button, fill, h, icon, refill, toast, unique } from './dom.js';
import { plain } from './format.js';
import { badge, dot, signInLink } from './pieces.js';
import { link, place } from './route.js';
import { fleet, me, meet, signOut, watch } from './world.js';

const at = (id) => document.getElementById(id);

/** The rail's list of views and servers; drawn again when the place changes. */
export function drawRail(views) {
  const [view, server] = place();
  const entry = (href, current, ...content) =>
    h('a', { class: 'rail-link', href, 'data-key': href, 'aria-current': current ? 'page' : null }, content);
  refill(
    at('places'),
    me.hosted
      ? views.map(([name, title, picture]) => entry(link(name), view === name, icon(picture), h('span', {}, title)))
      : null,
  );
  refill(
    at('fleet'),
    me.hosted && fleet()?.length ? h('h2', {}, 'Servers') : null,
    (me.hosted ? (fleet() ?? []) : []).map((one) =>
      entry(
        link('server', one.id),
        view === 'server' && server === one.id,
        dot(one),
        h('span', { class: 'grow cut' }, one.id),
        one.drift ? badge([`${one.drift}`, h('span', { class: 'unseen' }, ' changed')], 'bad') : h('span', { class: 'told' }, one.tools ?? ''),
      ),
    ),
  );
  document.documentElement.classList.toggle('alone', !me.hosted);
  at('title').textContent = plain(me.title, 60);
  at('version').textContent = me.version ? `version ${me.version}` : '';
}

export function beginShell(views, focusSearch) {
  arrows(at('rail'), '.rail-link');
  watch(() => drawRail(views));
  fill(at('menu'), icon('menu'));
  at('menu').addEventListener('click', () => openRail(at('menu').getAttribute('aria-expanded') !== 'true'));
  // The fragment of the address is the place of the reader, so this link must not change it.
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    at('main').focus();
  });
  at('shade').addEventListener('click', () => openRail(false));
  const token = tokenField();
  fill(at('bar-end'), token.node, themeButton());
  onUnauthorized(() => token.hint('This needs a token.'));
  addEventListener('keydown', (event) => {
    const typing = event.target.closest?.('input, textarea, select, [contenteditable]');
    if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      focusSearch();
    } else if (event.key === 'Escape') {
      openRail(false);
      token.close();
    }
  });
  return { closeRail: () => openRail(false, false) };
}

/** On a narrow page the rail lies over it. */
function openRail(wanted, refocus = true) {
  const was = at('menu').getAttribute('aria-expanded') === 'true';
  if (was === wanted) return;
  at('menu').setAttribute('aria-expanded', String(wanted));
  at('rail').classList.toggle('open', wanted);
  at('shade').hidden = !wanted;
  if (wanted) at('rail').querySelector('a')?.focus();
  else if (refocus) at('menu').focus();
}

function themeButton() {
  const system = matchMedia('(prefers-color-scheme: dark)');
  const now = () => document.documentElement.getAttribute('data-theme') ?? (system.matches ? 'dark' : 'light');
  const toggle = button(
    '',
    () => {
      const next = now() === 'dark' ? 'light' : 'dark';
      document.documentElement.setAttribute('data-theme', next);
      try {
        localStorage.setItem('console.theme', next);
      } catch {
        // It then holds until the page is closed.
      }
      draw();
      announce(`${next} theme`);
    },
    { look: 'quiet icon' },
  );
  const draw = () => {
    fill(toggle, icon(now() === 'dark' ? 'sun' : 'moon'));
    toggle.setAttribute('aria-label', now() === 'dark' ? 'Light theme' : 'Dark theme');
  };
  system.addEventListener('change', draw);
  draw();
  return toggle;
}

function tokenField() {
  const id = unique('token');
  const box = h('input', {
    type: 'password',
    id,
    autocomplete: 'off',
    spellcheck: 'false',
    placeholder: 'Bearer token',
  });
  const about = h('p', { class: 'hint' });
  const form = h(
    'form',
    { class: 'token-form', hidden: true, on: { submit: enter } },
    h('label', { for: id, class: 'name' }, 'Bearer token'),
    box,
    about,
    h(
      'div',
      { class: 'actions' },
      button('Forget', () => use(''), { look: 'small' }),
      h('button', { class: 'primary small', type: 'submit' }, 'Use'),
    ),
  );
  const who = h('span', { class: 'who' });
  const open = h(
    'button',
    {
      type: 'button',
      class: 'quiet',
      'aria-expanded': 'false',
      on: { click: () => (form.hidden ? show('') : close()) },
    },
    icon('key'),
    h('span', { class: 'unseen' }, 'Token'),
    who,
  );
  const browser = h('span', { class: 'browser' });
  const node = h('div', { class: 'token' }, browser, open, form);
  node.addEventListener('focusout', (event) => {
    if (event.relatedTarget && !node.contains(event.relatedTarget)) close();
  });
  let asked = false;
  watch(draw);

  function draw() {
    fill(
      browser,
      me.signIn && !me.signedIn && !hasToken() ? signInLink('button small') : null,
      me.signedIn ? button('Sign out', leave, { look: 'small' }) : null,
    );
    fill(
      who,
      h('span', { class: 'cut' }, plain(me.principal ?? (me.auth && !me.signIn ? 'no token' : ''), 40)),
      me.operator ? badge('operator', 'accent') : null,
    );
  }

  function show(sentence) {
    form.hidden = false;
    open.setAttribute('aria-expanded', 'true');
    about.textContent =
      sentence ||
      (me.auth || !me.hosted
        ? 'It is kept in the memory of this page until you close it.'
        : 'This adapter does not require a token.');
    box.focus();
  }

  function close() {
    form.hidden = true;
    open.setAttribute('aria-expanded', 'false');
  }

  function enter(event) {
    event.preventDefault();
    use(box.value);
  }

  async function use(text) {
    const stranger = me.principal === null && text !== '';
    useToken(text);
    forget();
    box.value = '';
    asked = false;
    close();
    Object.assign(me, { principal: null, operator: false });
    try {
      await meet();
      draw();
      if (hasToken() && me.principal === null && me.hosted) toast('That token is not accepted.', { bad: true });
      else announce(me.principal ? `You are ${me.principal}.` : 'Token forgotten.');
    } finally {
      dispatchEvent(new CustomEvent('hashchange', { detail: { stranger } }));
    }
  }

  async function leave() {
    await signOut();
    forget();
    draw();
    announce('You are signed out.');
    dispatchEvent(new CustomEvent('hashchange', { detail: {} }));
  }

  /** Opens the field once for each token: what is asked in the background shall not open it again and again. */
  function hint(sentence) {
    if (asked || me.signIn !== false) return;
    asked = true;
    show(`${sentence} Enter a bearer token; it is only kept in memory.`);
  }

  return { node, close, hint };
}
