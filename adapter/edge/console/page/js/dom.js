// Everything on the page is made here: by createElement, with text as text. There is no way from a string to markup.

const SVG = 'http://www.w3.org/2000/svg';

/**
 * An element. `props` are attributes, except `on` (listeners by event) and `value`, `checked`, `disabled`, `hidden`
 * and `open` (properties). False, null and undefined leave an attribute out. Children are nodes, texts or lists.
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) set(element, name, value);
  element.append(...flat(children));
  return element;
}

const PROPERTIES = new Set(['value', 'checked', 'disabled', 'hidden', 'open', 'indeterminate']);

function set(element, name, value) {
  if (name === 'on') {
    for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
  } else if (PROPERTIES.has(name)) {
    element[name] = value ?? (name === 'value' ? '' : false);
  } else if (value !== false && value !== null && value !== undefined) {
    // Names come from this page's code alone; this keeps it so.
    if (/^on/i.test(name) || name === 'style' || name === 'srcdoc') throw new Error(`no attribute ${name} here`);
    element.setAttribute(name, value === true ? '' : String(value));
  }
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** An SVG element; attributes only. */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...flat(children));
  return element;
}

/** Puts `children` in the place of all that `element` held. */
export function fill(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/** As `fill`, and the focus stays on the part that has the same `data-key` as the one it was on. */
export function refill(element, ...children) {
  const key = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  fill(element, ...children);
  if (key !== undefined) element.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  return element;
}

const ICONS = {
  menu: 'M4 7h16M4 12h16M4 17h16',
  search: 'M11 4a7 7 0 1 0 0 14a7 7 0 0 0 0-14M20 20l-4-4',
  sun: 'M12 8a4 4 0 1 0 0 8a4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5',
  moon: 'M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z',
  key: 'M8 11a4 4 0 1 0 0 8a4 4 0 0 0 0-8M11 12l8-8M16 7l3 3M14 9l2 2',
  servers:
    'M5 4h14a1 1 0 0 1 1 1v5a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1M5 13h14a1 1 0 0 1 1 1v5a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1v-5a1 1 0 0 1 1-1M8 7.5h.01M8 16.5h.01',
  pulse: 'M3 12h4l3-8l4 16l3-8h4',
  files: 'M14 3H7a2 2 0 0 0-2 2v14a2 2 0 0 0 2 2h10a2 2 0 0 0 2-2V8zM14 3v5h5',
  people:
    'M9 5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 0 0 0-7M2.5 20a6.5 6.5 0 0 1 13 0M16 5.5a3.5 3.5 0 0 1 0 6.2M18 14.5a6.5 6.5 0 0 1 3.5 5.5',
  config:
    'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5a2.5 2.5 0 1 0 0 5a2.5 2.5 0 0 0 0-5M9 14.5a2.5 2.5 0 1 0 0 5a2.5 2.5 0 0 0 0-5',
  play: 'M7 4.5v15l12-7.5z',
  stop: 'M6 6h12v12H6z',
  pause: 'M8 5v14M16 5v14',
  check: 'M4.5 12.5l5 5l10-11',
  copy: 'M9 9h10a1 1 0 0 1 1 1v10a1 1 0 0 1-1 1H9a1 1 0 0 1-1-1V10a1 1 0 0 1 1-1M16 9V5a1 1 0 0 0-1-1H5a1 1 0 0 0-1 1v10a1 1 0 0 0 1 1h3',
  clip: 'M20 11.5l-8.2 8.2a5 5 0 0 1-7.1-7.1l8.5-8.5a3.4 3.4 0 0 1 4.8 4.8l-8.4 8.4a1.7 1.7 0 0 1-2.4-2.4l7.7-7.7',
  down: 'M12 4v12M6.5 11l5.5 5.5l5.5-5.5M5 20h14',
  eye: 'M2.5 12S6 5.5 12 5.5S21.5 12 21.5 12S18 18.5 12 18.5S2.5 12 2.5 12M12 9.2a2.8 2.8 0 1 0 0 5.6a2.8 2.8 0 0 0 0-5.6',
  plus: 'M12 5v14M5 12h14',
  cross: 'M6 6l12 12M18 6L6 18',
  reload: 'M20 11a8 8 0 1 0-.7 4.5M20 4v7h-7',
  tool: 'M14.5 6.5a4 4 0 0 1 5-1l-2.7 2.7l1 2l2 1L22 8.5a4.5 4.5 0 0 1-6.3 5L8 21a2 2 0 0 1-3-3l7.6-7.5a4 4 0 0 1 1.9-4z',
  warn: 'M12 4L2.5 20h19zM12 10v4.5M12 17.2v.01',
};

/** A picture that says nothing by itself: the control it stands in has a text or a label. */
export function icon(name) {
  const picture = s('svg', { viewBox: '0 0 24 24', class: 'ico', 'aria-hidden': 'true', focusable: 'false' });
  picture.append(s('path', { d: ICONS[name] }));
  return picture;
}

/** A button; `look` is its classes. */
export function button(label, act, { look = '', picture = null, ...props } = {}) {
  return h(
    'button',
    { type: 'button', class: look, on: { click: act }, ...props },
    picture && icon(picture),
    label && h('span', {}, label),
  );
}

let last = 0;

/** An id that nothing else on the page has. */
export const unique = (prefix = 'i') => `${prefix}${(last += 1)}`;

const status = () => document.getElementById('status');

/** Says a sentence to those who listen to the page. */
export function announce(text) {
  status().textContent = text;
}

/** Shows a sentence for some seconds; `bad` ones are of something that failed. */
export function toast(text, { bad = false } = {}) {
  const note = h('div', { class: bad ? 'toast bad' : 'toast' }, text);
  document.getElementById('toasts').append(note);
  setTimeout(() => note.remove(), bad ? 8000 : 4000);
}

/** Arrow keys, Home and End move the focus among the parts of `container` that match `selector`. */
export function arrows(container, selector, { sideways = false } = {}) {
  const [before, after] = sideways ? ['ArrowLeft', 'ArrowRight'] : ['ArrowUp', 'ArrowDown'];
  container.addEventListener('keydown', (event) => {
    const parts = [...container.querySelectorAll(selector)];
    const at = parts.indexOf(event.target.closest(selector));
    if (at < 0) return;
    const to = { [before]: at - 1, [after]: at + 1, Home: 0, End: parts.length - 1 }[event.key];
    if (to === undefined || !parts[to]) return;
    event.preventDefault();
    parts[to].focus();
  });
  return container;
}
