// Tabs: one row of buttons, one panel, arrow keys between them (WAI-ARIA APG, "Tabs").

import { arrows, h, unique } from './dom.js';

/**
 * A row named `label` with `choices` of `[value, text]`. `chosen(value)` fills `panel`, and may refuse with false;
 * it is not called for the first choice, which is shown as chosen.
 */
export function tabs(label, choices, chosen, first = choices[0][0]) {
  const panel = h('div', { class: 'panel', role: 'tabpanel', id: unique('panel') });
  const buttons = choices.map(([value, text, badge]) =>
    h(
      'button',
      {
        type: 'button',
        role: 'tab',
        id: unique('tab'),
        'aria-controls': panel.id,
        'data-key': `tab-${label}-${value}`,
        on: { click: () => choose(value), focus: () => choose(value) },
      },
      text,
      badge ? h('span', { class: 'count' }, badge) : null,
    ),
  );
  const list = arrows(h('div', { class: 'tabs', role: 'tablist', 'aria-label': label }, buttons), '[role=tab]', {
    sideways: true,
  });
  let now = first;
  mark();

  function choose(value) {
    if (value === now || chosen(value) === false) return;
    now = value;
    mark();
  }

  function mark() {
    choices.forEach(([value], at) => {
      buttons[at].setAttribute('aria-selected', value === now ? 'true' : 'false');
      buttons[at].tabIndex = value === now ? 0 : -1;
      if (value === now) panel.setAttribute('aria-labelledby', buttons[at].id);
    });
  }

  return { list, panel, choose };
}
