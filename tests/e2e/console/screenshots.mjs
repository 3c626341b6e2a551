// node screenshots.mjs URL DIRECTORY: the main views of the console as pictures for people who have not started it yet.

import { browser } from './browser.mjs';
import { at, run } from './parts.mjs';

const [url, directory] = process.argv.slice(2);
const chromium = await browser();

const VIEWS = {
  async servers(page) {
    await page.goto(url);
    await page.getByRole('heading', { name: 'studio' }).waitFor();
    await page.locator('.activity-chart').waitFor();
  },
  async run(page) {
    await page.goto(at(url, 'server', 'studio', 'tools', 'plan_trip'));
    await page.getByLabel('destination').fill('Lisbon');
    await page.getByLabel('departure').fill('2026-09-01T08:30:15');
    await page.getByRole('button', { name: 'Validate' }).click();
    await page.getByText('Valid', { exact: true }).waitFor();
  },
  async result(page) {
    await page.goto(at(url, 'server', 'studio', 'tools', 'report/weekly'));
    await run(page);
    await page.locator('.plot iframe').first().scrollIntoViewIfNeeded();
    await page.frameLocator('.plot iframe').first().locator('svg').first().waitFor();
    await page
      .locator('.prose')
      .first()
      .evaluate((node) => node.scrollIntoView({ block: 'start' }));
    await page.frameLocator('.plot iframe').nth(1).locator('svg').first().waitFor();
  },
  async artifact(page) {
    await page.goto(at(url, 'server', 'studio', 'tools', 'draw_landscape'));
    await run(page);
    await page.waitForFunction(() => document.querySelector('.picture img')?.naturalWidth > 0);
    await page.locator('.outcome').evaluate((node) => node.scrollIntoView({ block: 'end' }));
  },
  async pins(page) {
    await page.goto(at(url, 'server', 'studio', 'pins'));
    await page.getByText('Pinned').first().waitFor();
  },
  async connect(page) {
    await page.goto(at(url, 'server', 'studio', 'connect'));
    await page.locator('.connect pre').first().waitFor();
  },
  async wide(page) {
    await page.goto(at(url, 'server', 'studio', 'tools', 'draw_landscape'));
    await run(page);
    await page.waitForFunction(() => document.querySelector('.picture img')?.naturalWidth > 0);
  },
  async exchanges(page) {
    await page.goto(at(url, 'exchanges'));
    await page.locator('.exchange').nth(24).waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.locator('.exchange summary').nth(2).click();
  },
};

/** File, view and what the page is opened with. */
const PICTURES = [
  ['console-servers', 'servers', {}],
  ['console-run', 'run', {}],
  ['console-result', 'result', {}],
  ['console-artifact', 'artifact', { colorScheme: 'dark' }],
  ['console-pins', 'pins', {}],
  ['console-exchanges', 'exchanges', {}],
  ['console-connect', 'connect', {}],
  ['console-wide', 'wide', { viewport: { width: 1800, height: 900 } }],
  ['console-phone', 'run', { narrow: true, colorScheme: 'dark' }],
];

try {
  for (const [file, view, options] of PICTURES) {
    const { page } = await chromium.open({ timezoneId: 'UTC', locale: 'en-GB', ...options });
    await VIEWS[view](page);
    await page.evaluate(() => document.fonts.ready);
    await page.mouse.move(0, 0);
    await page.waitForTimeout(300);
    await page.screenshot({ path: `${directory}/${file}.png` });
    console.log(`${file}.png`);
    await page.context().close();
  }
} finally {
  await chromium.close();
}
