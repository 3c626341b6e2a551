// Terms of the protocol in words for people, as chips that keep the term in their tooltips.

import { plain } from './format.js';
import { claimsOf } from './pieces.js';
import { chip, chips } from './tip.js';

const TRANSPORTS = {
  streamable_http: ['over HTTP', 'Transport: streamable HTTP'],
  http: ['over HTTP', 'Transport: streamable HTTP'],
  sse: ['over HTTP, old way', 'Transport: HTTP+SSE, of MCP 2024-11-05'],
  stdio: ['own process', 'Transport: stdio. The adapter starts the server as a process.'],
  hosted: ['in the adapter', 'Transport: hosted. The adapter itself runs these tools.'],
};
const BREAKERS = {
  closed: ['calls pass', 'ok', 'Circuit breaker: closed. Calls are forwarded.'],
  open: ['calls refused', 'bad', 'Circuit breaker: open. Calls are refused at once.'],
  half_open: ['being tested', 'warn', 'Circuit breaker: half-open. Only pings of the adapter test the server.'],
};

/** What a protocol era is called: `legacy` → `2025-era`. */
export function eraWords(era) {
  if (era === 'legacy') return '2025-era';
  if (era === 'modern') return '2026-era';
  const year = /^(\d{4})-\d\d-\d\d$/.exec(era ?? '')?.[1];
  return year ? `${year}-era` : plain(era, 20);
}

/** The term behind it. */
export function eraTerm(era) {
  if (era === 'legacy') return 'Protocol era: legacy, MCP 2024-11-05 to 2025-11-25, with sessions';
  if (era === 'modern') return 'Protocol era: modern, MCP 2026-07-28, without sessions';
  return `Protocol revision: MCP ${plain(era, 20)}`;
}

/** Era, transport and breaker of a server as a row of chips. */
export function facts(server, place) {
  const breaker = server.breaker?.state ?? server.breaker;
  const of = (name) => `${place}-${server.id}-${name}`;
  const [way, transport] = TRANSPORTS[server.transport] ?? [plain(server.transport, 30), `Transport: ${plain(server.transport, 30)}`];
  const [calls, look, state] = BREAKERS[breaker] ?? [plain(breaker, 30), 'warn', `Circuit breaker: ${plain(breaker, 30)}`];
  const found = [
    server.era ? chip(eraWords(server.era), { term: eraTerm(server.era), key: of('era') }) : null,
    server.transport ? chip(way, { term: transport, key: of('transport') }) : null,
    breaker ? chip(calls, { look, term: state, key: of('breaker') }) : null,
    server.uploads
      ? chip('takes files', {
          look: 'accent',
          term: server.helper ? `Upload consumer: clients get upload URLs from ${plain(server.helper, 80)}` : 'Upload consumer',
          key: of('files'),
        })
      : null,
  ].filter(Boolean);
  return found.length ? chips(`About ${plain(server.id, 80)}`, found) : null;
}

/** What a tool claims about itself as a row of chips; null where it claims nothing. */
export function claims(annotations) {
  const found = claimsOf(annotations).map(([text, look, term]) => chip(text, { look, term: `${term}. A claim of the server.` }));
  return found.length ? chips('Claims of the server about this tool', found) : null;
}
