// What a server says outside of calls: that its lists changed, that what was opened is done. Heard while the page is
// seen, because a browser opens only a few connections to one place.

import { events, send } from './api.js';

const AGAIN = 5000;
const MOST_TRIES = 5;

/**
 * Tells `changed(list)` and `complete(id)` until `signal` is aborted or `wanted()` is false. A server that has no such
 * stream is asked a few times.
 */
export async function follow(server, { changed = () => {}, complete = () => {} }, signal, wanted = () => true) {
  for (let tries = 0; tries < MOST_TRIES && !signal.aborted && wanted(); tries += 1) {
    await visible(signal);
    if (signal.aborted || !wanted()) return;
    const began = Date.now();
    const stop = new AbortController();
    const leave = () => stop.abort();
    const hide = () => document.hidden && stop.abort();
    signal.addEventListener('abort', leave);
    document.addEventListener('visibilitychange', hide);
    try {
      const response = await send(`${encodeURIComponent(server)}/events`, {
        accept: 'text/event-stream',
        signal: stop.signal,
      });
      if (!response.ok) return;
      for await (const { event, data } of events(response)) {
        const read = JSON.parse(data);
        if (event === 'changed') changed(read.list);
        else if (event === 'complete') complete(read.elicitationId);
        if (!wanted()) leave();
      }
    } catch {
      // The page was hidden or left, or the connection broke: the next round says which.
    } finally {
      signal.removeEventListener('abort', leave);
      document.removeEventListener('visibilitychange', hide);
      stop.abort();
    }
    if (Date.now() - began > AGAIN || document.hidden) tries = -1;
    else await new Promise((resolve) => setTimeout(resolve, AGAIN));
  }
}

function visible(signal) {
  if (!document.hidden) return null;
  return new Promise((resolve) => {
    document.addEventListener('visibilitychange', resolve, { once: true });
    signal.addEventListener('abort', resolve, { once: true });
  });
}
