// Surveys of servers by a TypeScript client: node survey.mjs QUESTIONS, told as one JSON object; see survey_v1.py.
// QUESTIONS is JSON with `sdk` (ts_v1 or ts_v2), `mode` (of ts_v2), `target`, `calls` and `hears`.
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.NODE_PACKAGES}/`);
const { sdk, mode, target, calls, hears } = JSON.parse(process.argv[2]);
// The SDK 2.x tells there about lists that it does not ask for.
console.debug = () => {};
const answers = {};
const heard = [];
let more = () => {};

const hear = (message) => {
  heard.push(JSON.stringify(message));
  more();
};

const said = {
  'roots/list': { roots: [{ uri: 'file:///tmp/a', name: 'a' }] },
  'sampling/createMessage': { role: 'assistant', content: { type: 'text', text: 'sampled' }, model: 'm' },
  'elicitation/create': { action: 'decline' },
};

function connected() {
  const legacy = sdk === 'ts_v1';
  const from = (v1, v2) => require(legacy ? `@modelcontextprotocol/sdk/client/${v1}.js` : v2);
  const whole = '@modelcontextprotocol/client';
  const { Client } = from('index', whole);
  const { StdioClientTransport } = from('stdio', `${whole}/stdio`);
  const { StreamableHTTPClientTransport } = from('streamableHttp', whole);
  const { SSEClientTransport } = from('sse', whole);
  const capabilities = { roots: { listChanged: true }, sampling: {}, elicitation: { form: {} } };
  const pinned = mode?.startsWith('2') ? { pin: mode } : mode;
  const client = new Client({ name: sdk, version: '1' }, { capabilities, versionNegotiation: { mode: pinned } });
  if (target.url) return [client, new StreamableHTTPClientTransport(new URL(target.url))];
  if (target.sse) return [client, new SSEClientTransport(new URL(target.sse))];
  return [client, new StdioClientTransport({ ...target, stderr: 'ignore' })];
}

// Hears at the transport: the clients drop what comes for a call just before its result.
function listen(transport) {
  let receive;
  const heed = (message, extra) => {
    answers.version ??= message.result?.protocolVersion;
    if (message.method) hear({ method: message.method, params: message.params });
    return receive(message, extra);
  };
  const set = (wanted) => { receive = wanted; };
  Object.defineProperty(transport, 'onmessage', { get: () => receive && heed, set });
}

async function ask(question, asking) {
  const refused = (error) => ({ refused: { name: error.name, code: error.code, text: error.message, data: error.data } });
  answers[question] = await asking().catch(refused);
  return answers[question];
}

const [client, transport] = connected();
listen(transport);
client.fallbackRequestHandler = async ({ method }) => said[method];
// What it is asked by results of the modern era has no fallback.
if (mode?.startsWith('2')) {
  for (const [method, answer] of Object.entries(said)) client.setRequestHandler(method, async () => answer);
}
await client.connect(transport);
answers.server = client.getServerVersion();
answers.capabilities = client.getServerCapabilities();
answers.instructions = client.getInstructions();
answers.version = client.getNegotiatedProtocolVersion?.() ?? answers.version;
await ask('tools', () => client.listTools());
const { resources = [] } = await ask('resources', () => client.listResources());
await ask('templates', () => client.listResourceTemplates());
for (const { uri } of resources) await ask(`read ${uri}`, () => client.readResource({ uri }));
const { prompts = [] } = await ask('prompts', () => client.listPrompts());
for (const { name } of prompts) await ask(`prompt ${name}`, () => client.getPrompt({ name }));
for (const [number, [name, given]] of calls.entries()) {
  const params = { name, arguments: given };
  const reporting = { onprogress: () => {} };
  await ask(`call ${number} ${name}`, () =>
    sdk === 'ts_v1' ? client.callTool(params, undefined, reporting) : client.callTool(params, reporting),
  );
}
await ask('read nothing', () => client.readResource({ uri: 'nothing://here' }));
await ask('prompt nothing', () => client.getPrompt({ name: 'no-such-prompt' }));
while (heard.length < hears) {
  await new Promise((resolve) => {
    more = resolve;
  });
}
await client.close();
console.log(JSON.stringify({ answers, heard: heard.sort() }));
