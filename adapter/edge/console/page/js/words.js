// Which words differ between two texts.

import { h } from './dom.js';

const MOST_WORDS = 700;

/** Both texts as nodes, with the words marked that the other does not have in that place. */
export function marked(before, after) {
  const [old, now] = [split(before), split(after)];
  if (old.length > MOST_WORDS || now.length > MOST_WORDS) return [[h('del', {}, before)], [h('ins', {}, after)]];
  const kept = common(old, now);
  return [
    runs(
      old,
      kept.map(([at]) => at),
      'del',
    ),
    runs(
      now,
      kept.map(([, at]) => at),
      'ins',
    ),
  ];
}

const split = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];

/** The longest common subsequence, as pairs of places. */
function common(old, now) {
  const width = now.length + 1;
  const lengths = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] =
        old[i] === now[j]
          ? lengths[(i + 1) * width + j + 1] + 1
          : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const pairs = [];
  for (let i = 0, j = 0; i < old.length && j < now.length;) {
    if (old[i] === now[j]) pairs.push([i++, j++]);
    else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return pairs;
}

function runs(words, kept, tag) {
  const same = new Set(kept);
  const nodes = [];
  for (let at = 0; at < words.length;) {
    const from = at;
    const whether = same.has(at);
    while (at < words.length && same.has(at) === whether) at += 1;
    const text = words.slice(from, at).join('');
    nodes.push(whether ? text : h(tag, {}, text));
  }
  return nodes;
}
