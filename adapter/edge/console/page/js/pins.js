// The pins of a server: what its tools were when they were trusted beside what they are now, and the decision.

import { Refused, get, post, reason } from './api.js';
import { when } from './condition.js';
import { button, fill, h, toast } from './dom.js';
import { count, plain, relative } from './format.js';
import { badge, loading, nothing, waiting } from './pieces.js';
import { marked } from './words.js';
import { me, refresh, tools } from './world.js';

const MOST_TOOLS = 100;

export function showPins({ signal, id }) {
  const node = h('div', { class: 'pins' }, waiting());
  const path = `-/pins/${encodeURIComponent(id)}`;
  const load = () =>
    loading(node, async () => {
      const told = await get(path, { signal });
      fill(node, ...page(told));
    });
  load();
  // What is known is what was listed last: the tools are listed anew, and then it is told once more.
  tools(id, { anew: true })
    .catch(() => {})
    .then(() => signal.aborted || Promise.all([load(), refresh()]));

  function page(told) {
    const changed = (told.tools ?? []).filter((tool) => (tool.changes ?? []).length);
    const head = h(
      'div',
      { class: 'card pins-head' },
      h(
        'div',
        { class: 'grow' },
        h('h2', {}, headline(changed.length, told.remembered)),
        h(
          'p',
          { class: 'told' },
          [`mode ${told.mode}`, told.digest ? `now ${String(told.digest).slice(0, 12)}` : null, accepted(told.accepted)]
            .filter(Boolean)
            .join(' · '),
        ),
      ),
      changed.length || told.remembered ? decision(told, changed) : null,
    );
    const met = told.remembered ? [memory(told.remembered)] : [];
    if (!changed.length) return [head, ...met, still(told)];
    return [
      head,
      ...met,
      changed.slice(0, MOST_TOOLS).map(sheet),
      changed.length > MOST_TOOLS
        ? h(
            'p',
            { class: 'notice' },
            `${count(changed.length - MOST_TOOLS, 'more tool')} changed; mcp-adapter pins diff shows all.`,
          )
        : null,
    ];
  }

  function decision(told, changed) {
    if (!me.operator) {
      return h(
        'div',
        { class: 'decision' },
        button('Accept', () => {}, { disabled: true, picture: 'check', 'aria-describedby': 'why-not' }),
        h(
          'p',
          { class: 'hint', id: 'why-not' },
          `Only operators can accept. ${me.principal ? `“${plain(me.principal, 60)}” is not one of console.operators.` : 'Enter an operator’s token.'}`,
        ),
      );
    }
    return h(
      'div',
      { class: 'decision' },
      button('Accept…', () => ask(told, changed), { look: 'primary', picture: 'check' }),
    );
  }

  function ask(told, changed) {
    const sure = h(
      'dialog',
      { class: 'dialog', 'aria-labelledby': 'sure-title' },
      h('h2', { id: 'sure-title' }, `Accept the current tools of ${id}?`),
      h(
        'p',
        {},
        changed.length
          ? `${count(changed.length, 'changed tool')}: ${changed
              .slice(0, 6)
              .map((tool) => plain(tool.name, 60))
              .join(', ')}${changed.length > 6 ? ' …' : ''}. Every session starts from this catalogue.`
          : 'The server offers the pinned tools again. Accepting clears the stored drift.',
      ),
      h('p', { class: 'told mono' }, String(told.digest ?? '').slice(0, 64)),
      h(
        'div',
        { class: 'actions' },
        button('Back', () => sure.close(), { autofocus: true }),
        button('Accept', () => accept(told, sure), { look: 'primary', picture: 'check' }),
      ),
    );
    sure.addEventListener('close', () => sure.remove());
    document.body.append(sure);
    sure.showModal();
  }

  async function accept(told, sure) {
    try {
      await post(`${path}/accept`, { digest: told.digest });
      toast(`Accepted: these tools are now the baseline of ${id}.`);
      tools(id, { anew: true }).catch(() => {});
      await refresh();
    } catch (failure) {
      const late = failure instanceof Refused && failure.status === 409;
      toast(late ? 'The tools have changed again. Look at them before you accept.' : reason(failure), {
        bad: true,
      });
    } finally {
      sure.close();
      load();
    }
  }

  return node;
}

/** Said only as far as it is true: tools that are what they were may have been others in between. */
function headline(changed, remembered) {
  if (changed) return `${count(changed, 'tool')} changed since ${changed === 1 ? 'it was' : 'they were'} pinned`;
  return remembered ? 'The tools changed and changed back' : 'Nothing changed';
}

/** What sessions met that nobody has accepted. */
function memory({ catalogues = [], sessions, since, by, more }) {
  return h(
    'section',
    { class: 'card met' },
    h('h3', {}, 'Not accepted yet'),
    h(
      'p',
      { class: 'told' },
      'first seen ',
      when(since),
      ` by ${plain(by, 60)} · seen by ${count(sessions, 'session')}`,
    ),
    h(
      'ul',
      {},
      catalogues.map((each) =>
        h(
          'li',
          {},
          h('span', { class: 'mono' }, String(each.digest).slice(0, 12)),
          ' ',
          when(each.since),
          `, ${count(each.sessions, 'session')}: ${plain(each.what, 400)}`,
        ),
      ),
      more ? h('li', { class: 'told' }, `and ${count(more, 'further catalogue')}`) : null,
    ),
  );
}

/** What stands there where nothing changed: of a server that was never pinned, nothing can have. */
function still({ tools: all = [], origin }) {
  const pinned = all.filter((tool) => tool.pinned).length;
  if (!all.length) return nothing('No tools are known yet', 'They appear here after a client has listed them.');
  if (!pinned)
    return nothing('Nothing is pinned yet', `${count(all.length, 'tool')} would be the baseline of the next session.`);
  return nothing(
    'No tool has changed',
    `${count(pinned, 'tool')} as pinned${origin === 'lock' ? ' by the lock file' : ''}.`,
  );
}

function accepted(value) {
  if (value === null || value === undefined) return 'nothing accepted yet';
  return typeof value === 'number' ? `accepted ${relative(value)}` : `accepted ${plain(value, 40)}`;
}

function sheet(tool) {
  const kind = !tool.pinned ? ['new', 'accent'] : !tool.now ? ['removed', 'warn'] : ['changed', 'bad'];
  const unsafe =
    Array.isArray(tool.unsafe) && tool.unsafe.length
      ? badge(`less safe: ${plain(tool.unsafe.join(', '), 80)}`, 'bad')
      : null;
  return h(
    'article',
    { class: 'card sheet' },
    h(
      'header',
      { class: 'split' },
      h('h3', { class: 'mono' }, plain(tool.name, 120)),
      h('div', { class: 'badges' }, unsafe, badge(kind[0], kind[1])),
    ),
    tool.changes.slice(0, 50).map(({ path, before, after }) => {
      const [old, now] = marked(said(before), said(after));
      return h(
        'div',
        { class: 'change' },
        h('p', { class: 'change-path mono' }, plain(path || 'definition', 200)),
        h(
          'div',
          { class: 'sides' },
          h('div', { class: 'one old' }, h('p', { class: 'label' }, 'Pinned'), h('pre', {}, old)),
          h('div', { class: 'one now' }, h('p', { class: 'label' }, 'Now'), h('pre', {}, now)),
        ),
      );
    }),
  );
}

function said(value) {
  if (value === undefined || value === null) return '';
  return plain(typeof value === 'string' ? value : JSON.stringify(value, null, 2), 6000).replaceAll('\\u000a', '\n');
}
