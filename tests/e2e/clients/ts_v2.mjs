// The TypeScript SDK 2.x: node ts_v2.mjs URL HEADERS [legacy|auto|2026-07-28]
import { converse, require } from './conversation.mjs';

const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

const [url, headers, wanted = 'auto'] = process.argv.slice(2);
const mode = wanted.startsWith('2') ? { pin: wanted } : wanted;
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: JSON.parse(headers) } });
await converse(new Client({ name: 'ts-v2', version: '1' }, { versionNegotiation: { mode } }), transport);
