// Plots and diagrams, drawn in a frame without an origin: its libraries make markup out of what they are given, and
// there nothing is to be had. The text goes in by a message, and a height or a failure comes out.

import { fill, h } from './dom.js';

const PATIENCE = 20_000;
const LONGEST = 500_000;
const HIGHEST = 1600;

/** The node of a plot; `kind` is echarts or mermaid. */
export function plot(kind, text) {
  const node = h('div', { class: 'plot', 'data-kind': kind });
  if (text.length > LONGEST) return fill(node, source(text, 'This plot is too large to draw.'));
  const name = kind === 'echarts' ? 'Chart' : 'Diagram';
  const frame = h('iframe', {
    sandbox: 'allow-scripts',
    src: new URL('../frame.html', import.meta.url).href,
    title: name,
    loading: 'lazy',
  });
  const waits = h('p', { class: 'told', role: 'status' }, `Drawing the ${name.toLowerCase()}…`);
  let late = null;

  const finish = (...rest) => {
    clearTimeout(late);
    waits.remove();
    node.append(...rest);
  };
  const fail = (sentence) => {
    removeEventListener('message', hear);
    frame.remove();
    finish(source(text, sentence));
  };
  function hear(event) {
    if (event.source !== frame.contentWindow) {
      if (!node.isConnected) removeEventListener('message', hear);
      return;
    }
    const { type, height, message } = event.data ?? {};
    if (type === 'ready') {
      late = setTimeout(() => fail('Drawing took too long.'), PATIENCE);
      frame.contentWindow.postMessage({ kind, text, look: look() }, '*');
    } else if (type === 'drawn' && Number.isFinite(height)) {
      frame.style.height = `${Math.min(HIGHEST, Math.max(80, Math.ceil(height)))}px`;
      finish();
    } else if (type === 'failed') {
      fail(`This ${name.toLowerCase()} cannot be drawn: ${String(message).slice(0, 300)}`);
    }
  }
  addEventListener('message', hear);
  node.append(frame, waits);
  return node;
}

/** The page's colors, for what is drawn to fit in. */
function look() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  return {
    dark: color('--is-dark') === '1',
    text: color('--text'),
    muted: color('--muted'),
    line: color('--line'),
    surface: color('--surface'),
    accent: color('--accent'),
    soft: color('--accent-soft'),
  };
}

const source = (text, sentence) =>
  h(
    'div',
    { class: 'stack' },
    h('p', { class: 'notice' }, sentence),
    h('pre', { class: 'code', tabindex: '0' }, text.slice(0, 20_000)),
  );
