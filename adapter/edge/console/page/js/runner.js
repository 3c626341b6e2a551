// Running a tool: validate, run, progress as it comes, cancel, and the result.

import { reason } from './api.js';
import { refusal, validate } from './calling.js';
import { announce, button, fill, h } from './dom.js';
import { callWithPerson, completed, linksNode, questions } from './elicitation.js';
import { duration, plain } from './format.js';
import { copyButton } from './leaving.js';
import { badge, withLinks } from './pieces.js';
import { follow } from './news.js';
import { rawNode, resultNode } from './result.js';
import { tabs } from './tabs.js';
import { me, watch } from './world.js';

const TICK = 100;

/** The node to run a tool in; leaving the tool (`signal`) cancels the call. */
export function runner({ server, name, form, signal }) {
  const execute = button('Run', run, { look: 'primary', picture: 'play', title: 'Ctrl + Enter' });
  const check = button('Validate', () => judge(read()), { picture: 'check' });
  const cancel = button('Cancel', () => under?.abort(), { picture: 'stop', hidden: true });
  const elapsed = h('span', { class: 'elapsed', 'aria-hidden': 'true' });
  const verdict = h('p', { class: 'verdict', role: 'status' });
  const live = h('div', { class: 'live', hidden: true });
  const outcome = h('div', { class: 'outcome' });
  const asked = questions(server, `The tool ${plain(name, 80)}`);
  const actions = h('div', { class: 'run-bar' }, execute, check, cancel, elapsed, verdict);
  let under = null;
  watch(() => {
    // Before the reader has signed in nobody knows what is allowed; a call then asks for the token.
    if (!me.allow_execute && (me.principal !== null || !me.auth)) forbid();
  }, signal);

  function forbid() {
    if (!actions.contains(execute)) return;
    execute.remove();
    actions.append(
      h('p', { class: 'hint' }, 'Running tools is off here (console.allow_execute: false). You can look and validate.'),
    );
  }

  function read() {
    try {
      form.blame([]);
      return form.read();
    } catch (failure) {
      form.complain(failure.message);
      return null;
    }
  }

  /** Whether the server would take these arguments; true as well where nobody can tell. */
  async function judge(args) {
    if (args === null) return false;
    try {
      const errors = await validate(server, name, args);
      form.blame(errors);
      verdict.className = errors.length ? 'verdict bad' : 'verdict good';
      verdict.textContent = errors.length
        ? `${errors.length === 1 ? 'One thing is' : `${errors.length} things are`} wrong`
        : 'Valid';
      return errors.length === 0;
    } catch (failure) {
      verdict.className = 'verdict bad';
      verdict.textContent = reason(failure);
      return true;
    }
  }

  async function run() {
    const args = read();
    if (args === null || under) return;
    // A form that is not filled in yet is no call. Whoever wants to send what is wrong can: as JSON.
    if (form.isForm && !(await judge(args))) return;
    if (under) return;
    under = new AbortController();
    const stop = () => under?.abort();
    signal.addEventListener('abort', stop);
    const began = performance.now();
    const timer = setInterval(() => {
      elapsed.textContent = duration(performance.now() - began);
    }, TICK);
    busy(true);
    try {
      under.signal.addEventListener('abort', asked.clear);
      const answer = await callWithPerson(server, name, args, asked, { progress: show, signal: under.signal });
      arrived(answer, performance.now() - began);
    } catch (failure) {
      if (failure.name === 'AbortError')
        tell(
          'Cancelled',
          `The call was cancelled after ${duration(performance.now() - began)}, and the server was notified.`,
          'warn',
        );
      else tell('No result', reason(failure), 'bad');
    } finally {
      clearInterval(timer);
      elapsed.textContent = '';
      signal.removeEventListener('abort', stop);
      under = null;
      busy(false);
    }
  }

  function busy(now) {
    execute.disabled = now;
    execute.lastChild.textContent = now ? 'Executing…' : 'Run';
    cancel.hidden = !now;
    live.hidden = true;
    verdict.textContent = '';
    if (now) {
      fill(live);
      fill(outcome);
      asked.clear();
      announce('Executing.');
      if (document.activeElement === execute || document.activeElement === document.body) cancel.focus();
    } else if (document.activeElement === cancel || document.activeElement === document.body) execute.focus();
  }

  function show({ progress, total, message }) {
    live.hidden = false;
    const known = Number.isFinite(total) && total > 0;
    let bar = live.querySelector('progress');
    if (!bar) {
      bar = h('progress', { 'aria-label': 'Progress of the call' });
      fill(live, bar, h('span', { class: 'told', 'aria-live': 'polite' }));
    }
    if (known) [bar.max, bar.value] = [total, progress];
    else bar.removeAttribute('value');
    const share = known ? `${Math.round((100 * progress) / total)} %` : Number.isFinite(progress) ? `${progress}` : '';
    live.lastChild.textContent = [share, plain(message ?? '', 300)].filter(Boolean).join(' · ');
  }

  function arrived(answer, ms) {
    const why = refusal(answer);
    if (why) {
      tell(why[0], why[1], 'bad');
      if (answer.status === 403) forbid();
      return;
    }
    const result = answer.body;
    if (result._meta?._elicitations) {
      const links = linksNode(server, `The tool ${plain(name, 80)}`, result._meta._elicitations, run);
      fill(outcome, links);
      outcome.querySelector('h3').focus();
      follow(server, { complete: (id) => completed(links, id) }, signal, () => links.isConnected);
      return;
    }
    const bad = result.isError === true;
    const trace = result._meta?._trace_id;
    const head = h(
      'div',
      { class: 'outcome-head' },
      h('h3', { class: 'unseen' }, 'Result'),
      badge(bad ? 'error' : 'success', bad ? 'bad' : 'ok'),
      badge(String(answer.status), '', 'HTTP status'),
      h('span', { class: 'told' }, duration(ms)),
      trace ? copyButton(`trace ${plain(trace, 12)}`, () => String(trace), 'small quiet') : null,
    );
    const sides = tabs(
      'The result',
      [
        ['result', 'Result'],
        ['raw', 'Raw MCP'],
      ],
      (wanted) => {
        fill(sides.panel, wanted === 'raw' ? rawNode(result) : shown);
      },
    );
    const shown = resultNode(server, result);
    fill(sides.panel, shown);
    fill(outcome, head, sides.list, sides.panel);
    outcome.classList.toggle('failed', bad);
    outcome.scrollIntoView({ block: 'nearest' });
    announce(`${bad ? 'The tool reports an error' : 'The result arrived'} after ${duration(ms)}.`);
  }

  function tell(title, about, look) {
    outcome.classList.remove('failed');
    fill(outcome, h('div', { class: `notice ${look}`, role: 'alert' }, h('strong', {}, title), h('p', {}, withLinks(about))));
  }

  const node = h('div', { class: 'runner' }, form.node, actions, live, asked.node, outcome);
  node.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (actions.contains(execute)) run();
    } else if (event.key === 'Escape' && under) {
      event.stopPropagation();
      under.abort();
    }
  });
  return node;
}
