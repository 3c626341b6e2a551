// What a reader does with tools: find, fill in, run, cancel, take what comes back.

import { at, result, run, useToken } from './parts.mjs';

export const using = {
  /** By keyboard alone: search, open, fill in, run. */
  async find(open, url) {
    const { page, reported } = await open();
    await page.goto(url);
    await page.getByRole('heading', { name: 'studio' }).waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('count');
    await page.getByRole('option', { name: /count_words/ }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'count_words' }).waitFor();
    await page.getByRole('textbox', { name: 'path' }).focus();
    await page.keyboard.type('upload://somewhere');
    await page.keyboard.press('Control+Enter');
    await result(page).getByText('success').waitFor();
    await page.getByRole('tab', { name: 'Raw MCP' }).click();
    const raw = await result(page).locator('.tree').innerText();
    await page.getByRole('tab', { name: 'cURL & Python' }).click();
    const [curl, python] = await page.locator('pre.code').allInnerTexts();
    return { raw, curl, python, ...reported };
  },

  /** The file goes up with its bar moving, and its handle into the field. */
  async upload(open, url, file) {
    const { page, reported } = await open();
    await page.goto(at(url, 'server', 'studio', 'tools', 'count_words'));
    await page.getByRole('button', { name: 'Attach a file' }).waitFor();
    const seen = page
      .evaluate(
        () =>
          new Promise((resolve) => {
            const values = [];
            const look = () => {
              const bar = document.querySelector('.upload progress');
              if (bar && bar.value > 0 && values.at(-1) !== bar.value / bar.max) values.push(bar.value / bar.max);
              if (values.length && !bar) resolve(values);
              else setTimeout(look, 20);
            };
            look();
          }),
      )
      .catch((failure) => failure);
    await page.locator('input[type=file]').setInputFiles(file);
    const bars = await seen;
    await page.getByText('uploaded').first().waitFor();
    const handle = await page.locator('.file-field textarea').inputValue();
    await run(page);
    await result(page).getByText('success').waitFor();
    return { bars, handle, ...reported };
  },

  /** Progress is shown while the call runs, and Cancel ends it. */
  async cancel(open, url) {
    const { page, reported } = await open();
    await page.goto(at(url, 'server', 'studio', 'tools', 'import_catalogue'));
    await page.getByLabel('steps').fill('40');
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
  async artifact(open, url) {
    const { page, reported } = await open({ acceptDownloads: true });
    await page.goto(at(url, 'server', 'studio', 'tools', 'draw_landscape'));
    await run(page);
    const picture = page.getByRole('img', { name: 'Picture: morning.png' });
    await picture.waitFor();
    await page.waitForFunction(() => document.querySelector('.picture img').naturalWidth > 0);
    const width = await picture.evaluate((image) => image.naturalWidth);
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download' }).click(),
    ]);
    return { width, filename: download.suggestedFilename(), ...reported };
  },

  /** The form and its JSON hold the same; faults stand at their fields. */
  async form(open, url) {
    const { page, reported } = await open({ timezoneId: 'UTC' });
    await page.goto(at(url, 'server', 'studio', 'tools', 'plan_trip'));
    await page.getByRole('tab', { name: 'JSON' }).click();
    const prefilled = JSON.parse(await page.getByLabel('Arguments as JSON').inputValue());
    await page.getByRole('tab', { name: 'Form' }).click();
    await run(page);
    await page.getByText('2 things are wrong').waitFor();
    const faults = await page.locator('.fault:visible').allInnerTexts();
    await page.waitForFunction(() => document.activeElement.closest('.field')?.innerText.startsWith('destination'));
    await page.getByLabel('destination').fill('Lisbon');
    await page.getByLabel('departure').fill('2026-09-01T08:30:15');
    await page.getByLabel('class').selectOption('business');
    await page.getByText('Yes', { exact: true }).click();
    await page.getByRole('button', { name: 'Add to stops' }).click();
    await page.getByLabel('place').fill('Porto');
    await page.getByRole('tab', { name: 'JSON' }).click();
    const filled = JSON.parse(await page.getByLabel('Arguments as JSON').inputValue());
    await page
      .getByLabel('Arguments as JSON')
      .fill(JSON.stringify({ ...filled, budget: 'much', unknown: [1], travellers: 3 }));
    await page.getByRole('tab', { name: 'Form' }).click();
    const budget = await page.getByLabel('budget').inputValue();
    await page.getByRole('button', { name: 'Validate' }).click();
    await page.getByText('Valid', { exact: true }).waitFor();
    await run(page);
    await result(page).getByText('success').waitFor();
    return { prefilled, faults, filled, budget, ...reported };
  },

  /** The same call for a terminal and as a script. */
  async snippets(open, url, path) {
    const { page, reported } = await open();
    await page.goto(at(url, 'server', 'studio', 'tools', 'count_words'));
    await useToken(page, 'token-of-vic');
    await page.getByRole('textbox', { name: 'path' }).fill(path);
    await page.getByRole('tab', { name: 'cURL & Python' }).click();
    const [curl, python] = await page.locator('pre.code').evaluateAll((all) => all.map((one) => one.textContent));
    await page.getByRole('button', { name: 'Copy' }).first().click();
    await page.getByRole('button', { name: 'Copied!' }).waitFor();
    return { curl, python, ...reported };
  },

  /** Behind the page stands the adapter itself: a file in, a picture out, and both in the list of exchanges. */
  async adapter(open, url) {
    const { page, reported } = await open({ acceptDownloads: true });
    await page.goto(at(url, 'server', 'upstream', 'tools', 'digest'));
    await page.getByRole('button', { name: 'Attach a file' }).waitFor();
    await page
      .locator('input[type=file]')
      .setInputFiles({ name: 'words.txt', mimeType: 'text/plain', buffer: Buffer.from('three small words') });
    await page.getByText('uploaded').first().waitFor();
    await run(page);
    await result(page).getByText('success').waitFor();
    const said = await result(page).innerText();
    await page.goto(at(url, 'server', 'upstream', 'tools', 'draw'));
    await page.getByLabel('filename').fill('drawn.png');
    await page.getByLabel('seed').fill('1');
    await page.getByLabel('size').fill('5000');
    await run(page);
    await result(page).getByText('success').waitFor();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download' }).click(),
    ]);
    await page.goto(at(url, 'files'));
    await page.getByText('drawn.png').waitFor();
    await page.goto(at(url, 'exchanges'));
    await page.locator('.exchange').nth(2).waitFor();
    const exchanges = await page.locator('.x-what').allInnerTexts();
    return {
      said,
      filename: download.suggestedFilename(),
      exchanges,
      violations: await page.evaluate(() => window.violations),
      ...reported,
    };
  },
};
