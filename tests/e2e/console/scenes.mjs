// node scenes.mjs SCENE URL: plays one scene on the console's page and prints what was seen, as JSON.

import { AXE, browser } from './browser.mjs';

const [scene, url, ...words] = process.argv.slice(2);
const chromium = await browser();

const run = (page) => page.getByRole('button', { name: 'Run', exact: true }).click();
const result = (page) => page.locator('.outcome');
const at = (...parts) => `${url}#/${parts.map(encodeURIComponent).join('/')}`;

/** Signs in by the field of the top bar. */
async function useToken(page, token) {
  await page.getByLabel('Bearer token').fill(token);
  await page.getByLabel('Bearer token').press('Enter');
}

const SCENES = {
  /** By keyboard alone: search, open, fill in, run. */
  async find(open) {
    const { page, reported } = await open();
    await page.goto(url);
    await page.getByRole('heading', { name: 'studio' }).waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('count');
    await page.getByRole('option', { name: /count_words/ }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'count_words' }).waitFor();
    await page.getByLabel('path').focus();
    await page.keyboard.type('upload://somewhere');
    await page.keyboard.press('Control+Enter');
    await result(page).getByText('success').waitFor();
    await page.getByRole('tab', { name: 'Raw MCP' }).click();
    const raw = await result(page).locator('.tree').innerText();
    await page.getByRole('tab', { name: 'cURL & Python' }).click();
    const [curl, python] = await page.locator('pre.code').allInnerTexts();
    return { raw, curl, python, ...reported };
  },

  /** A file goes up with its bar moving, and its handle into the field. */
  async upload(open) {
    const { page, reported } = await open();
    await page.goto(at('server', 'studio', 'tools', 'count_words'));
    await page.getByRole('button', { name: 'Attach a file' }).waitFor();
    const seen = page.evaluate(() => new Promise((resolve) => {
      const values = [];
      const look = () => {
        const bar = document.querySelector('.upload progress');
        if (bar && bar.value > 0 && values.at(-1) !== bar.value / bar.max) values.push(bar.value / bar.max);
        if (values.length && !bar) resolve(values);
        else requestAnimationFrame(look);
      };
      look();
    }));
    await page.locator('input[type=file]').setInputFiles({ name: 'hamlet.txt', mimeType: 'text/plain', buffer: Buffer.alloc(24 * 1024 * 1024, 'words ') });
    const bars = await seen;
    await page.getByText('uploaded').first().waitFor();
    const handle = await page.getByLabel('path').inputValue();
    await run(page);
    await result(page).getByText('success').waitFor();
    return { bars, handle, ...reported };
  },

  /** Progress is shown while the call runs, and Cancel ends it. */
  async cancel(open) {
    const { page, reported } = await open();
    await page.goto(at('server', 'studio', 'tools', 'import_catalogue'));
    await page.getByLabel('steps').fill('4');
    await run(page);
    await page.getByRole('progressbar').waitFor();
    const shown = await page.locator('.live').innerText();
    await result(page).getByText('success').waitFor();
    await page.getByLabel('steps').fill('1000');
    await run(page);
    await page.getByText('Importing part 3').waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('Cancelled').first().waitFor();
    return { shown, again: await page.getByRole('button', { name: 'Run', exact: true }).isEnabled(), ...reported };
  },

  /** An artifact is previewed as a picture, and downloaded. */
  async artifact(open) {
    const { page, reported } = await open({ acceptDownloads: true });
    await page.goto(at('server', 'studio', 'tools', 'draw_landscape'));
    await run(page);
    const picture = page.getByRole('img', { name: 'Picture: morning.png' });
    await picture.waitFor();
    await page.waitForFunction(() => document.querySelector('.picture img').naturalWidth > 0);
    const width = await picture.evaluate((image) => image.naturalWidth);
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'Download' }).click()]);
    return { width, filename: download.suggestedFilename(), ...reported };
  },

  /** Charts and diagrams are drawn in frames that have no origin. */
  async plots(open) {
    const { page, reported } = await open();
    await page.goto(at('server', 'studio', 'tools', 'report/weekly'));
    await run(page);
    for (const frame of [0, 1]) {
      await page.locator('.plot iframe').nth(frame).scrollIntoViewIfNeeded();
      await page.frameLocator('.plot iframe').nth(frame).locator('svg').first().waitFor();
    }
    const origins = await Promise.all(page.frames().slice(1).map((frame) => frame.evaluate(() => window.origin)));
    const texts = await Promise.all(page.frames().slice(1).map((frame) => frame.evaluate(() => document.body.innerText)));
    return { origins, texts, violations: await page.evaluate(() => window.violations), ...reported };
  },

  /** An operator sees what changed and accepts it. */
  async accept(open) {
    const { page, reported } = await open();
    await page.goto(at('server', 'studio', 'pins'));
    await useToken(page, 'token-of-olga');
    await page.getByRole('heading', { name: '2 tools changed' }).waitFor();
    const marked = await page.locator('.one.now ins').first().innerText();
    await page.getByRole('button', { name: 'Accept…' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Accept' }).click();
    await page.getByRole('heading', { name: 'Nothing changed' }).waitFor();
    return { marked, ...reported };
  },

  /** A viewer sees the same and why it is not theirs to decide. */
  async refused(open) {
    const { page, reported } = await open();
    await page.goto(at('server', 'studio', 'pins'));
    await useToken(page, 'token-of-vic');
    await page.getByRole('heading', { name: '2 tools changed' }).waitFor();
    const button = page.getByRole('button', { name: 'Accept' });
    return { enabled: await button.isEnabled(), why: await page.locator('.decision .hint').innerText(), ...reported };
  },

  /** The form and its JSON hold the same; faults stand at their fields. */
  async form(open) {
    const { page, reported } = await open({ timezoneId: 'UTC' });
    await page.goto(at('server', 'studio', 'tools', 'plan_trip'));
    await page.getByRole('tab', { name: 'JSON' }).click();
    const prefilled = JSON.parse(await page.getByLabel('Arguments as JSON').inputValue());
    await page.getByRole('tab', { name: 'Form' }).click();
    await page.getByRole('button', { name: 'Validate' }).click();
    const faults = await page.locator('.fault:visible').allInnerTexts();
    await page.getByLabel('destination').fill('Lisbon');
    await page.getByLabel('departure').fill('2026-09-01T08:30:15');
    await page.getByLabel('class').selectOption('business');
    await page.getByText('Yes', { exact: true }).click();
    await page.getByRole('button', { name: 'Add to stops' }).click();
    await page.getByLabel('place').fill('Porto');
    await page.getByRole('tab', { name: 'JSON' }).click();
    const filled = JSON.parse(await page.getByLabel('Arguments as JSON').inputValue());
    await page.getByLabel('Arguments as JSON').fill(JSON.stringify({ ...filled, budget: 'much', unknown: [1], travellers: 3 }));
    await page.getByRole('tab', { name: 'Form' }).click();
    const budget = await page.getByLabel('budget').inputValue();
    await page.getByRole('button', { name: 'Validate' }).click();
    await page.getByText('Valid', { exact: true }).waitFor();
    await run(page);
    await result(page).getByText('success').waitFor();
    return { prefilled, faults, filled, budget, ...reported };
  },

  /** What happens is shown as it happens; it can be held, searched and opened. */
  async exchanges(open) {
    const { page, reported } = await open();
    await page.goto(at('exchanges'));
    await page.locator('.exchange').nth(24).waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    const held = await page.locator('.exchange').count();
    await page.getByText('new').waitFor();
    const still = await page.locator('.exchange').count();
    await page.getByLabel('Filter exchanges').fill('warehouse timeout');
    await page.locator('.exchange summary').first().click();
    const stages = await page.locator('.exchange[open] .stage-name').allInnerTexts();
    return { held, still, stages, kept: await page.locator('.exchange').count(), ...reported };
  },

  /** The other views, and the theme, the token and the rail. */
  async around(open) {
    const { page, reported } = await open({ narrow: true });
    await page.goto(`${url}studio`);
    await page.getByRole('option').first().waitFor();
    await page.getByRole('button', { name: 'Menu' }).click();
    await page.getByRole('link', { name: 'Files' }).click();
    await page.getByText('hamlet.txt').waitFor();
    await page.getByRole('button', { name: 'Preview morning.png' }).click();
    await page.getByRole('img', { name: 'Picture: morning.png' }).waitFor();
    const quota = await page.getByRole('meter').getAttribute('aria-valuenow');
    await page.goto(at('sessions'));
    await page.getByText('4be1c0de').waitFor();
    await page.goto(at('config'));
    await page.locator('.yaml').waitFor();
    await page.getByRole('button', { name: 'Dark theme' }).click();
    await page.reload();
    const theme = await page.evaluate(() => document.documentElement.getAttribute('data-theme'));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    return { quota, theme, wide, ...reported };
  },

  /** Each view in one color scheme, under axe. */
  async axe(open) {
    const found = [];
    for (const narrow of [false, true]) {
      const { page } = await open({ colorScheme: words[0], narrow });
      await page.addInitScript(AXE);
      const look = async (name) => {
        await page.waitForTimeout(200);
        const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
        for (const one of violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')) {
          found.push(`${name}${narrow ? ' (narrow)' : ''}: ${one.id} ${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).join(' | ').slice(0, 800)}`);
        }
      };
      for (const view of ['servers', 'exchanges', 'files', 'sessions', 'config', 'server/studio', 'server/studio/pins']) {
        await page.goto(`${url}#/${view}`);
        await page.reload();
        await page.locator('h1').waitFor();
        await look(view);
      }
      await page.goto(at('server', 'studio', 'tools', 'plan_trip'));
      await page.getByRole('button', { name: 'Add to stops' }).click();
      await look('form');
      await page.goto(at('server', 'studio', 'tools', 'report/weekly'));
      await run(page);
      await page.locator('.prose h5, .prose .as-h2').first().waitFor();
      await look('result');
      await page.context().close();
    }
    return { found };
  },

  /** Nothing that a hostile tool says runs, in the page or in a frame. */
  async hostile(open) {
    const { page, reported } = await open();
    await page.goto(at('server', 'hostile'));
    await page.getByRole('option').nth(2).waitFor();
    await page.getByRole('option').nth(1).click();
    await page.locator('.tool h2').waitFor();
    await page.goto(at('server', 'hostile', 'tools', 'strike'));
    await page.getByRole('tab', { name: 'Schema' }).click();
    await page.getByRole('tab', { name: 'cURL & Python' }).click();
    await page.getByRole('tab', { name: 'Run' }).click();
    await run(page);
    await result(page).getByText('error', { exact: true }).waitFor();
    for (const plot of await page.locator('.plot').all()) await plot.scrollIntoViewIfNeeded();
    await page.frameLocator('.plot iframe').first().locator('svg').first().waitFor();
    for (const link of await page.locator('.outcome a').all()) await link.click({ trial: true });
    const hrefs = await page.locator('.outcome a').evaluateAll((links) => links.map((link) => link.href));
    const images = await page.locator('.outcome img').evaluateAll((all) => all.map((image) => [...image.attributes].map(({ name }) => name)).flat());
    await page.getByRole('tab', { name: 'Raw MCP' }).click();
    await page.keyboard.press('/');
    await page.keyboard.type('onerror');
    await page.getByRole('option').first().waitFor();
    const harmed = await Promise.all(page.frames().map((frame) => frame.evaluate(() => window.harmed ?? null)));
    const markup = await page.evaluate(() => document.querySelectorAll('[onerror], [onload], [onclick], main script, main svg [onload], main b').length);
    return { harmed, markup, hrefs, images, violations: await page.evaluate(() => window.violations), ...reported };
  },

  /** Ten megabytes of text and five thousand tools leave the page answering. */
  async heavy(open) {
    const { page, reported } = await open();
    await page.goto(at('server', 'vast'));
    await page.getByText('5,000 tools').waitFor();
    const rows = await page.getByRole('option').count();
    await page.getByLabel('Filter the tools').fill('4999');
    await page.getByRole('option', { name: 'tool_4999' }).click();
    await page.getByRole('heading', { name: 'tool_4999' }).waitFor();
    await page.goto(at('server', 'hostile', 'tools', 'pour'));
    await run(page);
    const waits = [];
    for (let shown = false; !shown; shown = await page.getByRole('button', { name: 'Show more' }).isVisible()) {
      const before = Date.now();
      await page.getByRole('button', { name: /theme/ }).click();
      waits.push(Date.now() - before);
    }
    const before = Date.now();
    await page.getByRole('button', { name: 'Show more' }).click();
    await page.getByRole('tab', { name: 'Raw MCP' }).click();
    waits.push(Date.now() - before);
    return { rows, waits, ...reported };
  },
};

try {
  console.log(JSON.stringify(await SCENES[scene](chromium.open)));
} finally {
  await chromium.close();
}
