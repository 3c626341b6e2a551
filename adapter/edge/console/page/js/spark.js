// The history of a server's latency as a small picture.

import { s } from './dom.js';
import { duration } from './format.js';

const [WIDTH, HEIGHT, PAD] = [220, 44, 3];

/** A line over `[[unix, ms or null], …]`; a gap and a mark below where there was no answer. */
export function spark(history) {
  const points = history.slice(-60);
  const known = points.map(([, ms]) => ms).filter((ms) => typeof ms === 'number');
  const highest = Math.max(1, ...known);
  const x = (at) => PAD + (at * (WIDTH - 2 * PAD)) / Math.max(1, points.length - 1);
  const y = (ms) => HEIGHT - PAD - (ms / highest) * (HEIGHT - 3 * PAD);
  const runs = [];
  const lost = [];
  let run = null;
  points.forEach(([, ms], at) => {
    if (typeof ms !== 'number') {
      run = null;
      lost.push(s('circle', { cx: x(at), cy: HEIGHT - PAD, r: 2.2, class: 'lost' }));
    } else if (run) run.push([x(at), y(ms)]);
    else runs.push((run = [[x(at), y(ms)]]));
  });
  const line = (one) => one.map(([left, top]) => `${left.toFixed(1)},${top.toFixed(1)}`).join(' ');
  const label = known.length
    ? `Latency: now ${duration(known.at(-1))}, at most ${duration(highest)}${lost.length ? `, ${lost.length} without an answer` : ''}`
    : 'No latency is known yet';
  return s(
    'svg',
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      class: 'spark',
      role: 'img',
      'aria-label': label,
      preserveAspectRatio: 'none',
    },
    runs.map((one) =>
      s('polygon', {
        points: `${one[0][0]},${HEIGHT - PAD} ${line(one)} ${one.at(-1)[0]},${HEIGHT - PAD}`,
        class: 'area',
      }),
    ),
    runs.map((one) => s('polyline', { points: line(one), class: 'line', 'vector-effect': 'non-scaling-stroke' })),
    lost,
  );
}
