// The way to the adapter: paths below the page's own, the bearer token from memory, failures as sentences.

/** The page's own place, with a slash behind it, wherever it is mounted. */
export const base = new URL('.', location.href);

const TAB = 'console.tab';
let token = '';
const refusals = new Set();

/** A request that was answered with a failure; `body` is what the answer held, as far as it was JSON. */
export class Refused extends Error {
  constructor(status, message, body = null) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

/** Keeps the token in memory alone: closing the page forgets it. `Bearer` may stand in front of it, or not. */
export function useToken(text) {
  token = text.trim().replace(/^bearer\s+/i, '');
}

export const hasToken = () => token !== '';

/** Calls `act` for each answer 401 to the token of now, or to none where there is none. */
export const onUnauthorized = (act) => refusals.add(act);

/** What tells this tab's files and sessions from those of the reader's other tabs; a reload keeps it. */
function tab() {
  try {
    let name = sessionStorage.getItem(TAB);
    if (!/^[\w-]{16,64}$/.test(name ?? '')) {
      name = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
      sessionStorage.setItem(TAB, name);
    }
    return name;
  } catch {
    return 'page';
  }
}

/**
 * The response to a request below the page's path, whatever its status. `call` is the id by which a call is found among
 * the exchanges. Raises TypeError when none came.
 */
export async function send(path, { method = 'GET', body, accept = 'application/json', call, signal } = {}) {
  const headers = { Accept: accept, 'X-Adapter-Session': tab(), 'X-Adapter-Answers': 'elicitation' };
  const sent = token;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (call) headers['X-Adapter-Call'] = call;
  const response = await fetch(new URL(path, base), {
    method,
    headers,
    body,
    signal,
    cache: 'no-store',
    // A cookie of this adapter's, where its reader has signed in; a token counts alone.
    credentials: token ? 'omit' : 'same-origin',
    redirect: 'error',
  });
  // Late, it speaks of a token that is used no more.
  if (response.status === 401 && sent === token) refusals.forEach((act) => act());
  return response;
}

/** The JSON of a successful answer. Raises Refused. */
export async function get(path, options = {}) {
  return checked(await send(path, options));
}

/** POST of a JSON value; the JSON of a successful answer. Raises Refused. */
export async function post(path, value, options = {}) {
  return checked(await send(path, { ...options, method: 'POST', body: JSON.stringify(value) }));
}

async function checked(response) {
  if (response.ok) return response.json();
  throw refused(response.status, await response.json().catch(() => null));
}

/** The failure that an answer tells of. */
export function refused(status, body) {
  return new Refused(status, sentence(body) ?? `The adapter answered ${status}.`, body);
}

function sentence(body) {
  const { error, detail, message } = body ?? {};
  if (error && typeof error === 'object') return sentence(error);
  const said = [error, detail, message].find((text) => typeof text === 'string' && text);
  return said ?? null;
}

/** Why something failed, for people. */
export function reason(failure) {
  if (failure instanceof Refused) return failure.message;
  if (failure instanceof TypeError) return 'The adapter cannot be reached.';
  return failure?.message ?? String(failure);
}

/**
 * The events of a response, one `{event, data}` after another (HTML standard, "Server-sent events").
 * Reads each byte once, so one event of many megabytes costs no more than its length.
 */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let [line, data, event] = [[], [], 'message'];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      let from = 0;
      for (let to; (to = value.indexOf('\n', from)) >= 0; from = to + 1) {
        line.push(value.slice(from, to));
        const whole = line.join('').replace(/\r$/, '');
        line = [];
        if (whole === '') {
          if (data.length) yield { event, data: data.join('\n') };
          [data, event] = [[], 'message'];
        } else if (whole.startsWith('data:')) {
          data.push(whole.slice(whole[5] === ' ' ? 6 : 5));
        } else if (whole.startsWith('event:')) {
          event = whole.slice(6).trim();
        }
      }
      line.push(value.slice(from));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
