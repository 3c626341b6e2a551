// node scenes.mjs SCENE URL WORDS…: plays one scene on the console's page and prints what was seen, as JSON.

import { browser } from './browser.mjs';
import { overseeing } from './overseeing.mjs';
import { rough } from './rough.mjs';
import { using } from './using.mjs';
import { watching } from './watching.mjs';

const [scene, url, ...words] = process.argv.slice(2);
const chromium = await browser();

try {
  console.log(JSON.stringify(await { ...using, ...watching, ...overseeing, ...rough }[scene](chromium.open, url, ...words)));
} finally {
  await chromium.close();
}
