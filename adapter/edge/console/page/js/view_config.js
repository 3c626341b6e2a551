// The settings as they hold, secrets masked by the adapter.

import { get } from './api.js';
import { fill, h } from './dom.js';
import { plain } from './format.js';
import { copyButton } from './leaving.js';
import { heading, loading, waiting } from './pieces.js';

const LONGEST = 400_000;

export function showConfig({ signal }) {
  const place = h('div', {}, waiting());
  loading(place, async () => {
    const { yaml, changed } = await get('-/config', { signal });
    fill(
      place,
      notice(changed),
      h(
        'div',
        { class: 'card flush code-card' },
        h(
          'div',
          { class: 'end pad' },
          copyButton('Copy', () => yaml),
        ),
        h(
          'pre',
          { class: 'code yaml', tabindex: '0', 'aria-label': 'Configuration' },
          yaml.length > LONGEST ? yaml : colored(yaml),
        ),
      ),
    );
  });

  return h(
    'section',
    { class: 'view' },
    heading('Configuration', 'All current settings. Secrets are masked before they leave the adapter.'),
    place,
  );
}

const STATES = {
  needs_restart: 'The settings file has changed, and the adapter needs a restart for it: ',
  refused: 'The settings file has changed and cannot be used, so the old settings stay in force. ',
};

function notice(changed) {
  const words = STATES[changed?.state];
  if (!words) return null;
  const more = changed.keys ? changed.keys.join(', ') : (changed.why ?? 'The log says why.');
  return h('p', { class: 'notice', role: 'status' }, words, plain(more, 2000));
}

const LINE = /^(\s*(?:- )*)(?:([^\s:#"'[{][^:#]*|"[^"]*"|'[^']*')(:)(?=\s|$))?(.*)$/;

function colored(yaml) {
  return yaml.split('\n').map((line) => {
    const [, indent, key, colon, rest] = LINE.exec(line) ?? [null, '', null, null, line];
    return [
      indent,
      key ? h('span', { class: 'key' }, key) : null,
      colon ? h('span', { class: 'dim' }, colon) : null,
      value(rest),
      '\n',
    ];
  });
}

function value(text) {
  const said = text.trim();
  const look = said.startsWith('#')
    ? 'dim'
    : /^['"]?\*{3,}|^['"]?•{3,}/.test(said)
      ? 'masked'
      : /^(true|false|null|~|yes|no)$/.test(said)
        ? 'boolean'
        : /^-?[\d.]+([a-zA-Z]{0,2})?$/.test(said)
          ? 'number'
          : said
            ? 'string'
            : null;
  return look ? h('span', { class: look }, text) : text;
}
