// The TypeScript SDK 2.x: node ts_v2.mjs URL HEADERS [legacy|auto|2026-07-28]
import { converse, require } from './conversation.mjs';
import { signedIn } from './sign_in.mjs';

const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

const [url, headers, wanted = 'auto'] = process.argv.slice(2);
const mode = wanted.startsWith('2') ? { pin: wanted } : wanted;
const client = () => new Client({ name: 'ts-v2', version: '1' }, { versionNegotiation: { mode } });
const transport = (authProvider) =>
  new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: JSON.parse(headers) }, authProvider });
let refused;
const attempt = async (provider) => {
  refused = transport(provider);
  const trying = client();
  await trying.connect(refused);
  // One that is pinned to the modern era connects without a word.
  await trying.listTools();
};
const connecting = () => signedIn(attempt, (answer) => refused.finishAuth(answer)).then(transport);
await converse(client(), connecting);
