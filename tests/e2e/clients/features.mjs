// The features of MCP as a TypeScript client finds them: node features.mjs QUESTIONS; see features.py.
// QUESTIONS has `sdk` too (ts_v1 or ts_v2).
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.NODE_PACKAGES}/`);
const { sdk, mode, targets } = JSON.parse(process.argv[2]);
// The SDK 2.x tells there about lists that it does not ask for.
console.debug = () => {};

const legacySdk = sdk === 'ts_v1';
const from = (v1, v2) => require(legacySdk ? `@modelcontextprotocol/sdk/client/${v1}.js` : v2);
const whole = '@modelcontextprotocol/client';
const { Client } = from('index', whole);
const { StreamableHTTPClientTransport } = from('streamableHttp', whole);

const PATIENCE = 30_000;
const AGAIN = 1_000;
const WATCHED = 'test://watched-resource';

const said = {
  'roots/list': { roots: [{ uri: 'file:///tmp/a', name: 'a' }] },
  'sampling/createMessage': { role: 'assistant', content: { type: 'text', text: 'sampled' }, model: 'm' },
  'elicitation/create': { action: 'accept', content: { username: 'Ada', email: 'ada@example.org' } },
};

const within = (promise, milliseconds) => {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('too late')), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};

function hearing() {
  const waits = new Map();
  const of = (method) => {
    if (!waits.has(method)) waits.set(method, Promise.withResolvers());
    return waits.get(method);
  };
  return { hear: ({ method }) => of(method).resolve(), until: (method) => of(method).promise };
}

function made() {
  const capabilities = { roots: { listChanged: true }, sampling: {}, elicitation: { form: {} } };
  const pinned = mode?.startsWith('2') ? { pin: mode } : mode;
  const client = new Client({ name: sdk, version: '1' }, { capabilities, versionNegotiation: { mode: pinned } });
  if (legacySdk) client.fallbackRequestHandler = async ({ method }) => said[method];
  else for (const [method, answer] of Object.entries(said)) client.setRequestHandler(method, async () => answer);
  return client;
}

async function foundAt(url) {
  const client = made();
  const heard = hearing();
  client.fallbackNotificationHandler = async (message) => heard.hear(message);
  const found = {};
  const note = async (feature, trying) => {
    try {
      found[feature] = await within(trying(), PATIENCE);
    } catch (error) {
      found[feature] = `!${error.name}: ${error.message}`;
    }
  };
  const call = async (name, given = {}, options = {}, _meta = undefined) => {
    const params = { name, arguments: given, ...(_meta && { _meta }) };
    const result = await (legacySdk ? client.callTool(params, undefined, options) : client.callTool(params, options));
    const text = result.content[0].text;
    return result.isError ? `!${text}` : text;
  };
  const changed = async (tool, method) => {
    for (;;) {
      const text = await call(tool);
      const came = await within(heard.until(method), AGAIN).then(() => true, () => false);
      if (came) return text;
    }
  };
  await note('connect', async () => {
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    return 'connected';
  });
  if (found.connect !== 'connected') return found;
  const modern = (client.getNegotiatedProtocolVersion?.() ?? '') >= '2026-07-28';
  await note('tools', async () => (await client.listTools()).tools.map(({ name }) => name).join(' '));
  await note('call', () => call('test_simple_text'));
  await note('progress', async () => {
    const seen = [];
    await call('test_tool_with_progress', {}, { onprogress: ({ progress }) => seen.push(progress) });
    return seen.join(' ');
  });
  await note('log', async () => {
    if (!modern) await client.setLoggingLevel('info');
    const text = await call('test_logging_tool', {}, {}, modern && { 'io.modelcontextprotocol/logLevel': 'info' });
    await heard.until('notifications/message');
    return text;
  });
  await note('elicit', () => call('test_elicitation', { message: 'Who?' }));
  await note('sample', () => call('test_sampling', { prompt: 'Say it' }));
  await note('roots', () => call('test_input_required_result_list_roots'));
  await note('resource', async () => (await client.readResource({ uri: 'test://static-text' })).contents[0].text);
  await note('prompt', async () => (await client.getPrompt({ name: 'test_simple_prompt' })).messages[0].content.text);
  let listening;
  await note('listen', async () => {
    if (modern) listening = await client.listen({ toolsListChanged: true, resourceSubscriptions: [WATCHED] });
    else await client.subscribeResource({ uri: WATCHED });
    return 'listening';
  });
  await note('list_changed', () => changed('test_trigger_tool_change', 'notifications/tools/list_changed'));
  await note('subscribe', () => changed('test_trigger_resource_change', 'notifications/resources/updated'));
  await listening?.close();
  await note('cancel', async () => {
    const name = randomUUID();
    const ending = new AbortController();
    const options = { signal: ending.signal, onprogress: () => ending.abort() };
    await call('test_wait', { name }, options).catch(() => {});
    return call('test_ended', { name });
  });
  await note('after', () => call('test_simple_text'));
  if (found.listen === 'listening') delete found.listen;
  await client.close();
  return found;
}

const names = Object.keys(targets);
const all = await Promise.all(names.map((name) => foundAt(targets[name])));
console.log(JSON.stringify(Object.fromEntries(names.map((name, index) => [name, all[index]]))));
process.exit(0);
