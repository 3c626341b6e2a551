// node live.mjs: reads {"scene", "url", …} from each line of its input, plays that scene on a page of its own, and
// prints what was seen, or why it came to no end.

import { createInterface } from 'node:readline';

import { browser } from './browser.mjs';
import { asking } from './live_asking.mjs';
import { using } from './live_using.mjs';
import { watching } from './live_watching.mjs';
import { origin } from './origin.mjs';

const SCENES = { ...asking, ...using, ...watching, ...origin };
const chromium = await browser();
process.once('SIGTERM', () => chromium.close().finally(() => process.exit()));

async function play({ scene, look = {}, ...words }) {
  const permissions = ['clipboard-read', 'clipboard-write'];
  const { page, reported } = await chromium.open({ acceptDownloads: true, permissions, ...look });
  // That an answer was 401 or 404 is told too; whether it should have been, the scene says.
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
      reported.errors.push(message.text());
    }
  });
  try {
    const seen = await SCENES[scene]({ page, ...words });
    return { ...seen, ...reported, violations: await page.evaluate(() => window.violations) };
  } catch (failure) {
    const text = await page.evaluate(() => document.body.innerText).catch(() => '');
    return { failed: `${failure.stack}\n${JSON.stringify(reported)}\n${text.slice(0, 3000)}` };
  } finally {
    await page.context().close();
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await play(JSON.parse(line))));
}
await chromium.close();
