// The TypeScript SDK 1.x: node ts_v1.mjs URL HEADERS
import { converse, require } from './conversation.mjs';

const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');

const [url, headers] = process.argv.slice(2);
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: JSON.parse(headers) } });
await converse(new Client({ name: 'ts-v1', version: '1' }), transport);
