// One call of a tool through the tool API: with its progress as it comes, and given up by aborting.

import { remember } from './again.js';
import { events, post, send } from './api.js';
import { toolPath } from './world.js';

/**
 * Calls a tool; `{status, body}` as the API answers it, whatever the status. `progress({progress, total, message})` is
 * told of notifications, `heard(event, data)` of all else that comes before the result. `more` has the answers with
 * which a call goes on that asked for input: `{inputResponses, requestState}`. Raises AbortError, TypeError.
 */
export async function call(server, tool, args, { progress, heard = () => {}, more = null, signal }) {
  const response = await send(`${toolPath(server, tool)}/${more ? 'continue' : 'call'}`, {
    method: 'POST',
    body: JSON.stringify(more ? { arguments: args, ...more } : args),
    accept: 'text/event-stream, application/json',
    call: remember(args),
    signal,
  });
  if (!(response.headers.get('Content-Type') ?? '').startsWith('text/event-stream')) {
    return { status: response.status, body: await response.json().catch(() => null) };
  }
  for await (const { event, data } of events(response)) {
    if (event === 'progress') progress(JSON.parse(data));
    else if (event === 'result') return JSON.parse(data);
    else heard(event, JSON.parse(data));
  }
  throw new Error('The connection ended before the result came.');
}

/** Gives the answer of a person to a question that a tool asked while it runs. Raises Refused, TypeError. */
export const answer = (server, tool, reply_to, result, signal) =>
  post(`${toolPath(server, tool)}/answer`, { reply_to, result }, { signal });

/** What a validation found wrong: a list of `{path, message}`, empty where nothing is. Raises Refused. */
export async function validate(server, tool, args) {
  const response = await send(`${toolPath(server, tool)}/validate`, { method: 'POST', body: JSON.stringify(args) });
  const body = await response.json().catch(() => null);
  if (body?.valid === true) return [];
  if (Array.isArray(body?.errors)) return body.errors;
  if (response.status === 401) throw new Error('Enter your bearer token above (the key symbol).');
  throw new Error(body?.error ?? body?.detail ?? `The adapter answered ${response.status}.`);
}

/** What a status that is no result means, and what to do about it; null where the body is a result. */
export function refusal({ status, body }) {
  if (Array.isArray(body?.content)) return null;
  const said = typeof body?.error === 'string' ? body.error : (body?.detail ?? null);
  if (status === 401)
    return [
      'Unauthorized',
      'This call needs a token. Enter your bearer token above (the key symbol), then run it again.',
    ];
  if (status === 403)
    return [
      'Execution is disabled',
      'This adapter does not allow the console to run tools. Its operator can set console.allow_execute: true.',
    ];
  if (status === 404)
    return ['Tool not found', said ?? 'The server does not list this tool any more. Reload the catalogue.'];
  if (status === 413) return ['Too large', said ?? 'The arguments are larger than console.max_body allows.'];
  return [`The adapter answered ${status}`, said ?? 'The answer has no result.'];
}
