// What a reader does with the tools of a running adapter: find, upload, run, follow, cancel, take what comes back.

import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';

import { at, result, run, signIn, succeeded, visit } from './live_parts.mjs';

const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

export const using = {
  /** A tool of some server by its name, among those of all servers; it is run with what the form asks for. */
  async find({ page, url, token }) {
    await visit(page, url, token);
    await page.getByRole('heading', { name: 'demo', exact: true }).waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('query orders');
    await page.getByRole('option', { name: /query_orders/ }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByLabel('customer').fill('C-001');
    await page.getByLabel('limit').fill('3');
    await run(page);
    await succeeded(page);
    const rows = await result(page).locator('tbody tr').count();
    await page.getByRole('tab', { name: 'Raw MCP' }).click();
    const raw = await result(page).locator('.tree').innerText();
    await page.goBack();
    await page.getByRole('heading', { name: 'Servers', level: 1 }).waitFor();
    await page.goForward();
    await page.reload();
    if (token) await signIn(page, token);
    await page.getByRole('heading', { name: 'query_orders' }).waitFor();
    return { rows, raw };
  },

  /** Who signs in when a call asks for it finds the form as it was. */
  async late({ page, url, token }) {
    await page.goto(at(url, 'server', 'demo', 'tools', 'query_orders'));
    await page.getByLabel('Bearer token').waitFor();
    await page.keyboard.press('Escape');
    await page.getByLabel('customer').fill('C-002');
    await run(page);
    await result(page).getByText('Unauthorized').waitFor();
    await signIn(page, token);
    await page.getByText('12 tools').waitFor();
    await page.waitForFunction(() => !document.querySelector('.outcome .notice'));
    const kept = await page.getByLabel('customer').inputValue();
    const clips = await page.getByRole('button', { name: 'Attach a file' }).count();
    await run(page);
    await succeeded(page);
    await page.getByRole('link', { name: 'Overview' }).click();
    await page.getByText(/5,\d+ tools/).waitFor();
    return { kept, clips };
  },

  /** A file goes up through the clip with its bar seen; the tool is run with the handle. */
  async upload({ page, url, token, name, size }) {
    await visit(page, url, token, 'server', 'demo', 'tools', 'digest');
    await page.getByRole('button', { name: 'Attach a file' }).waitFor();
    // As slow as a line that leaves this machine: else there is no bar to be seen.
    const network = await page.context().newCDPSession(page);
    await network.send('Network.enable');
    const slow = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: size / 0.6 };
    await network.send('Network.emulateNetworkConditions', slow);
    const bars = page.evaluate(
      () =>
        new Promise((resolve) => {
          const values = [];
          const look = () => {
            const bar = document.querySelector('.upload progress');
            if (bar && values.at(-1) !== bar.value / bar.max) values.push(bar.value / bar.max);
            if (values.length && !bar) resolve(values);
            else setTimeout(look, 20);
          };
          look();
        }),
    );
    const buffer = Buffer.alloc(size, 'Зимний сон. ');
    await page.locator('input[type=file]').setInputFiles({ name, mimeType: 'text/plain', buffer });
    await page.getByText('uploaded').first().waitFor();
    const handle = await page.locator('.file-field textarea').inputValue();
    await run(page);
    await succeeded(page);
    const said = await result(page).innerText();
    await page.getByRole('link', { name: 'Files' }).click();
    // The result, which names the file too, is there until the next page is.
    const quota = await page.getByRole('meter').getAttribute('aria-valuenow');
    await page.getByText(name).waitFor();
    return { bars: await bars, handle, said, digest: sha256(buffer), quota };
  },

  /** How far a call is, as it goes on. */
  async progress({ page, url, token }) {
    await visit(page, url, token, 'server', 'demo', 'tools', 'slow_count');
    await page.getByLabel('steps').fill('8');
    await page.getByLabel('pause_ms').fill('80');
    await page.evaluate(() => {
      window.told = [];
      const live = document.querySelector('.live');
      const look = () => {
        const bar = live.querySelector('progress');
        if (bar && window.told.at(-1)?.value !== bar.value) {
          window.told.push({ value: bar.value, max: bar.max, said: live.textContent });
        }
      };
      new MutationObserver(look).observe(live, { attributes: true, childList: true, subtree: true });
    });
    await run(page);
    await succeeded(page);
    return { told: await page.evaluate(() => window.told), said: await result(page).innerText() };
  },

  /** A call that would never end is given up. */
  async cancel({ page, url, token }) {
    await visit(page, url, token, 'server', 'demo', 'tools', 'linger');
    await run(page);
    await page.getByText('waiting for nobody').waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('Cancelled').first().waitFor();
    return { again: await page.getByRole('button', { name: 'Run', exact: true }).isEnabled() };
  },

  /** An image that a tool made is seen on the page, and saved. */
  async artifact({ page, url, token, name }) {
    await visit(page, url, token, 'server', 'demo', 'tools', 'draw_chart');
    await page.getByLabel('filename').fill(name);
    await run(page);
    await page.waitForFunction(() => document.querySelector('.outcome .picture img')?.naturalWidth > 0);
    const width = await page.locator('.outcome .picture img').evaluate((image) => image.naturalWidth);
    const saved = async (link) => {
      const [download] = await Promise.all([page.waitForEvent('download'), link.click()]);
      return [download.suggestedFilename(), (await readFile(await download.path())).toString('base64')];
    };
    const first = await saved(result(page).locator('.file').getByText('Download').first());
    await page.getByRole('link', { name: 'Files' }).click();
    await page.getByRole('button', { name: `Preview ${name}` }).click();
    await page.getByRole('img', { name: `Picture: ${name}` }).waitFor();
    const files = await saved(page.getByRole('button', { name: `Download ${name}` }));
    // What a tool made is a value for the next one.
    await page.goto(at(url, 'server', 'demo', 'tools', 'digest'));
    const recent = page.getByLabel('Recent files for path');
    await recent.focus();
    const made = recent.locator('optgroup[label="Made by tools"] option', { hasText: name });
    await made.waitFor({ state: 'attached' });
    await recent.selectOption(await made.getAttribute('value'));
    await page.getByText('made by a tool').waitFor();
    await run(page);
    await succeeded(page);
    const digest = await result(page).innerText();
    return { width, result: first, files, digest };
  },
};
