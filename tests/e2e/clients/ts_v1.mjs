// The TypeScript SDK 1.x: node ts_v1.mjs URL HEADERS
import { converse, require } from './conversation.mjs';
import { signedIn } from './sign_in.mjs';

const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');

const [url, headers] = process.argv.slice(2);
const client = () => new Client({ name: 'ts-v1', version: '1' });
const transport = (authProvider) =>
  new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: JSON.parse(headers) }, authProvider });
let refused;
const attempt = (provider) => {
  refused = transport(provider);
  return client().connect(refused);
};
const connecting = () => signedIn(attempt, (answer) => refused.finishAuth(answer.get('code'))).then(transport);
await converse(client(), connecting);
