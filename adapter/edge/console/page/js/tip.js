// Chips: words for people, with the term of the protocol in a tooltip that mouse, keyboard and screen readers reach.

import { arrows, h, unique } from './dom.js';

const GAP = 4;

/**
 * A chip that says `text`; `term` is what its tooltip says. `key` keeps the focus on it when its view is drawn again.
 * Escape takes the tooltip away (WCAG 2.2, 1.4.13).
 */
export function chip(text, { look = '', term, key }) {
  const id = unique('tip');
  const tip = h('span', { class: 'tip', role: 'tooltip', id, hidden: true }, term);
  const face = h('button', { type: 'button', class: `badge term ${look}`, 'aria-describedby': id, 'data-key': key }, text);
  const node = h('span', { class: 'term-place' }, face, tip);

  function show() {
    if (!tip.hidden) return;
    tip.hidden = false;
    const [place, size] = [face.getBoundingClientRect(), tip.getBoundingClientRect()];
    const below = place.bottom + GAP + size.height < innerHeight;
    tip.style.left = `${Math.max(GAP, Math.min(place.left, innerWidth - size.width - GAP))}px`;
    tip.style.top = `${below ? place.bottom + GAP : Math.max(GAP, place.top - GAP - size.height)}px`;
  }

  function hide() {
    tip.hidden = true;
  }

  node.addEventListener('mouseenter', show);
  node.addEventListener('mouseleave', () => document.activeElement === face || hide());
  face.addEventListener('focus', show);
  face.addEventListener('blur', hide);
  face.addEventListener('click', show);
  face.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || tip.hidden) return;
    event.stopPropagation();
    hide();
  });
  return node;
}

/** A row of chips with one tab stop; arrow keys move among them. */
export function chips(label, nodes) {
  const faces = nodes.map((node) => node.querySelector('.term'));
  const stop = (at) => faces.forEach((face, place) => (face.tabIndex = place === at ? 0 : -1));
  faces.forEach((face, at) => face.addEventListener('focus', () => stop(at)));
  stop(0);
  return arrows(h('div', { class: 'badges', role: 'group', 'aria-label': label }, nodes), '.term', { sideways: true });
}
