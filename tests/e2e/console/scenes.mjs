// node scenes.mjs: reads {"scene", "url", "words"} from each line of its input, plays that scene on the console's page and
// prints what was seen, or why it came to no end.

import { createInterface } from 'node:readline';

import { browser } from './browser.mjs';
import { overseeing } from './overseeing.mjs';
import { rough } from './rough.mjs';
import { using } from './using.mjs';
import { watching } from './watching.mjs';

const SCENES = { ...using, ...watching, ...overseeing, ...rough };
const chromium = await browser();
process.once('SIGTERM', () => chromium.close().finally(() => process.exit()));

for await (const line of createInterface({ input: process.stdin })) {
  const { scene, url, words } = JSON.parse(line);
  const seen = await SCENES[scene](chromium.open, url, ...words).catch((failure) => ({ failed: failure.stack }));
  console.log(JSON.stringify(seen));
  await chromium.clear();
}
await chromium.close();
