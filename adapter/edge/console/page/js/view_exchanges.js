// Exchanges as they happen: a table that grows at its head, each with its stages as a waterfall.

import { isRepeatable, runAgain } from './again.js';
import { events, get, reason, send } from './api.js';
import { button, fill, h } from './dom.js';
import { clock, count, duration, matcher, plain } from './format.js';
import { badge, heading, nothing } from './pieces.js';

const MOST = 300;
const AGAIN_AFTER = 3000;

export function showExchanges({ signal }) {
  const filter = h('input', {
    type: 'search',
    placeholder: 'Filter by method, tool, server, outcome',
    'aria-label': 'Filter exchanges',
    autocomplete: 'off',
    on: { input: draw },
  });
  const hold = button('Pause', toggle, { picture: 'pause', 'aria-pressed': 'false' });
  const told = h('p', { class: 'told', role: 'status' });
  const body = h('div', { class: 'exchanges', role: 'list', 'aria-label': 'Exchanges' });
  let [all, held, due] = [[], null, false];
  const open = new Set();
  follow();

  async function follow() {
    while (!signal.aborted) {
      try {
        add((await get('-/exchanges', { signal })).toReversed());
        const response = await send('-/exchanges', { accept: 'text/event-stream', signal });
        if (!(response.headers.get('Content-Type') ?? '').startsWith('text/event-stream'))
          throw new Error(`Live updates failed: the adapter answered ${response.status}.`);
        for await (const { data } of events(response)) add([JSON.parse(data)].flat());
      } catch (failure) {
        if (failure.name === 'AbortError') return;
        told.textContent = `${reason(failure)} Trying again…`;
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER));
    }
  }

  /** Takes exchanges in the order they happened; the table shows the newest first. */
  function add(more) {
    const target = held ?? all;
    const known = new Set(target.map(keyOf));
    for (const one of more) {
      const key = one && typeof one === 'object' && one.method !== undefined ? keyOf(one) : null;
      if (key === null || known.has(key)) continue;
      known.add(key);
      target.unshift(one);
    }
    target.length = Math.min(target.length, MOST);
    if (held) hold.lastChild.textContent = 'Resume';
    later();
  }

  /** Many may come at once; they are drawn together. */
  function later() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      draw();
    });
  }

  function toggle() {
    if (held) [all, held] = [held, null];
    else held = [...all];
    hold.setAttribute('aria-pressed', held ? 'true' : 'false');
    hold.lastChild.textContent = held ? 'Resume' : 'Pause';
    draw();
  }

  function draw() {
    const fits = matcher(filter.value);
    const kept = all.filter((one) =>
      fits(`${one.method} ${one.tool ?? ''} ${one.server} ${one.outcome} ${one.entrance ?? ''} ${one.status}`),
    );
    const focused = body.contains(document.activeElement)
      ? document.activeElement.closest('[data-id]')?.dataset.id
      : null;
    const longest = Math.max(1, ...kept.map((one) => one.ms ?? 0));
    fill(
      body,
      kept.length
        ? kept.map((one) => line(one, longest))
        : h(
            'div',
            { role: 'listitem' },
            nothing(
              all.length ? 'Nothing matches' : 'Quiet',
              all.length ? 'No exchange contains all of these words.' : 'Exchanges appear here as they happen.',
            ),
          ),
    );
    if (focused) body.querySelector(`[data-id="${CSS.escape(focused)}"] summary`)?.focus({ preventScroll: true });
    const news = held ? held.filter((one) => !all.includes(one)).length : 0;
    told.textContent = `${held ? 'Paused' : 'Live'} · ${kept.length === all.length ? count(all.length, 'exchange') : `${kept.length} of ${count(all.length, 'exchange')}`}${news ? ` · ${news} new` : ''}`;
  }

  function line(one, longest) {
    const id = keyOf(one);
    const bar = h('span', { class: 'bar-fill' });
    bar.style.width = `${Math.max(1, (100 * (one.ms ?? 0)) / longest)}%`;
    const entry = h(
      'details',
      { class: 'exchange', open: open.has(id), on: { toggle: () => (entry.open ? open.add(id) : open.delete(id)) } },
      h(
        'summary',
        {},
        h('span', { class: 'x-at told' }, clock(one.at)),
        h(
          'span',
          { class: 'x-server', title: one.replica ? `at replica ${one.replica}` : 'at this replica' },
          plain(one.server, 40),
        ),
        h(
          'span',
          { class: 'x-what mono' },
          plain(one.method, 60),
          one.tool ? h('strong', {}, ` ${plain(one.tool, 80)}`) : null,
        ),
        h('span', { class: 'x-entrance' }, one.entrance ? badge(one.entrance) : null),
        h(
          'span',
          { class: 'x-outcome' },
          badge(plain(one.outcome, 30), one.outcome === 'ok' ? 'ok' : one.outcome === 'client_gone' ? 'warn' : 'bad'),
          h('span', { class: 'told' }, one.status ?? ''),
        ),
        h(
          'span',
          { class: 'x-ms' },
          h('span', { class: 'bar-track', 'aria-hidden': 'true' }, bar),
          h('span', { class: 'number' }, duration(one.ms)),
        ),
      ),
      h(
        'div',
        { class: 'inside-exchange' },
        waterfall(one),
        isRepeatable(one)
          ? h(
              'p',
              { class: 'inset' },
              button('Run again…', () => runAgain(one), { look: 'small', picture: 'play' }),
            )
          : null,
      ),
    );
    return h('div', { role: 'listitem', 'data-id': id }, entry);
  }

  const view = h(
    'section',
    { class: 'view' },
    heading('Exchanges', 'Recent calls through the adapter, live. Open one to see its stages.'),
    h('div', { class: 'tools-row' }, filter, hold, told),
    body,
  );
  body.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.tagName !== 'SUMMARY') return;
    const rows = [...body.querySelectorAll('summary')];
    rows[rows.indexOf(event.target) + step]?.focus();
    event.preventDefault();
  });
  draw();
  return view;
}

const keyOf = (one) => `${one.at}|${one.server}|${one.method}|${one.tool ?? ''}|${one.ms}`;

function waterfall(one) {
  const stages = Array.isArray(one.stages) ? one.stages : [];
  if (!stages.length) return h('p', { class: 'told inset' }, 'No stages were measured.');
  const whole = Math.max(one.ms ?? 0, ...stages.map((stage) => (stage.start_ms ?? 0) + (stage.ms ?? 0)), 0.001);
  return h(
    'div',
    { class: 'waterfall', role: 'table', 'aria-label': 'Stages' },
    stages.map((stage) => {
      const bar = h('span', { class: stage.outcome === 'ok' ? 'span' : 'span bad' });
      bar.style.marginLeft = `${(100 * (stage.start_ms ?? 0)) / whole}%`;
      bar.style.width = `${Math.max(0.4, (100 * (stage.ms ?? 0)) / whole)}%`;
      return h(
        'div',
        { class: 'stage-row', role: 'row' },
        h('span', { class: 'stage-name mono', role: 'rowheader' }, plain(stage.name, 60)),
        h(
          'span',
          { class: 'stage-bar', role: 'cell', 'aria-label': `begins at ${duration(stage.start_ms ?? 0)}` },
          bar,
        ),
        h('span', { class: 'stage-ms number', role: 'cell' }, duration(stage.ms)),
        h('span', { class: 'told', role: 'cell' }, plain(stage.outcome ?? '', 30)),
      );
    }),
  );
}
