// What a server asks a reader, and what it has beside tools: questions, prompts, resources, files in lists.

import { move, result, run, succeeded, visit } from './live_parts.mjs';

const asked = (page) => page.locator('.question');
const send = (page) => asked(page).getByRole('button', { name: 'Send' }).click();
/** What the tool said, as it stands on its result's raw side. */
async function said(page) {
  await succeeded(page);
  await page.getByRole('tab', { name: 'Raw MCP' }).click();
  // What an earlier scene has copied is still there.
  await page.evaluate(() => navigator.clipboard.writeText(''));
  await page.getByRole('button', { name: 'Copy JSON' }).click();
  const copied = await page.waitForFunction(() => navigator.clipboard.readText());
  return JSON.parse(JSON.parse(await copied.jsonValue()).content[0].text);
}

async function open(page, name) {
  await move(page, `server/asking/tools/${name}`);
  await page.getByRole('heading', { name, exact: true }).waitFor();
}

const harm = (page) =>
  page.evaluate(() => ({
    harmed: window.harmed ?? null,
    markup: document.querySelectorAll('main [onerror], main [onload], main script').length,
  }));

export const asking = {
  /** A form with every kind of field: faults at their fields, then the answer; the next is declined, the last cancelled. */
  async form({ page, url, token }) {
    await visit(page, url, token, 'server', 'asking', 'tools', 'form');
    await run(page);
    await asked(page).waitFor();
    const focused = await page.evaluate(() => document.activeElement.textContent);
    const labels = await asked(page).locator('.field .name').allInnerTexts();
    await asked(page).getByLabel('Your name').fill('A');
    await asked(page).getByLabel('E-mail').fill('nobody');
    await asked(page).getByLabel('age').fill('17');
    await asked(page).getByLabel('Green').check();
    await asked(page).getByLabel('b', { exact: true }).check();
    await send(page);
    await asked(page).getByText('fields are wrong').waitFor();
    const faults = await asked(page).locator('.field .fault:visible').allInnerTexts();
    const first = await page.evaluate(() => document.activeElement.labels[0].textContent);
    await asked(page).getByLabel('Your name').fill('Ann');
    await asked(page).getByLabel('E-mail').fill('ann@example.com');
    await asked(page).getByLabel('site').fill('https://ann.example/');
    await asked(page).getByLabel('born').fill('2000-02-29');
    await asked(page).getByLabel('meet').fill('2026-09-01T08:30:15');
    await asked(page).getByLabel('age').fill('42');
    await asked(page).getByLabel('view').selectOption('The sea');
    await asked(page).getByLabel('bike').check();
    await asked(page).getByLabel('b', { exact: true }).uncheck();
    await asked(page).getByLabel('Your name').press('Control+Enter');
    const accepted = await said(page);
    await run(page);
    await asked(page).getByRole('button', { name: 'Decline' }).click();
    const declined = await said(page);
    await run(page);
    await asked(page).getByLabel('Your name').press('Escape');
    const cancelled = await said(page);
    await open(page, 'aside');
    await run(page);
    await asked(page).getByRole('button', { name: 'Decline' }).click();
    return { focused, labels, faults, first, accepted, declined, cancelled, aside: await said(page), ...(await harm(page)) };
  },

  /** Links that a tool wants opened: in full, and only by a click; then what a tool needs before it runs at all. */
  async links({ page, url, token }) {
    await page.context().route('https://sign.example/**', (route) => route.fulfill({ body: 'signed in' }));
    await visit(page, url, token, 'server', 'asking', 'tools', 'link');
    await run(page);
    await asked(page).waitFor();
    const shown = await asked(page).innerText();
    const link = asked(page).getByRole('link');
    const marks = await link.evaluate(({ target, rel, href }) => ({ target, rel, href }));
    const before = page.context().pages().length;
    const [tab] = await Promise.all([page.context().waitForEvent('page'), link.click()]);
    const opener = await tab.evaluate(() => window.opener);
    await tab.close();
    const accepted = await said(page);
    const done = await page.getByText('The server says that this is done.').count();
    await open(page, 'blocked');
    await run(page);
    await page.getByText('Please sign in.').waitFor();
    const blocked = await result(page).innerText();
    return { shown, marks, before, opener, accepted, done, blocked };
  },

  /** The tool runs as soon as what it needed is there. */
  async unblocked({ page, url, token }) {
    await visit(page, url, token, 'server', 'asking', 'tools', 'blocked');
    await run(page);
    return { said: await said(page) };
  },

  /** What nobody can answer is refused, and told in words. */
  async refused({ page, url, token }) {
    await visit(page, url, token, 'server', 'asking', 'tools', 'model');
    await run(page);
    const answers = await said(page);
    const words = await page.locator('.questions .notice').allInnerTexts();
    await open(page, 'nag');
    await run(page);
    await succeeded(page);
    return { answers, words, nags: await page.locator('.questions .notice').count() };
  },

  /** A server of the newer era asks in rounds; its tool is the demo's. */
  async rounds({ page, url, token }) {
    await visit(page, url, token, 'server', 'demo', 'tools', 'book_table');
    await page.getByLabel('guests').fill('4');
    await run(page);
    await asked(page).waitFor();
    await asked(page).getByLabel(/place/i).selectOption('terrace');
    await asked(page).getByText('Yes', { exact: true }).click();
    await send(page);
    await succeeded(page);
    const booked = await result(page).innerText();
    await run(page);
    await asked(page).getByRole('button', { name: 'Decline' }).click();
    await succeeded(page);
    return { booked, declined: await result(page).innerText() };
  },

  /** Prompts with their arguments, what the server suggests for them, and what it adds meanwhile. */
  async prompts({ page, url, token }) {
    await visit(page, url, token, 'server', 'asking', 'prompts');
    await page.getByRole('option', { name: /A greeting/ }).click();
    await page.getByRole('button', { name: 'Get' }).click();
    const faults = await page.locator('.fault:visible').allInnerTexts();
    await page.getByLabel('whom').fill('Li');
    await page.locator('datalist option').nth(2).waitFor({ state: 'attached' });
    const offers = await page.locator('datalist option').evaluateAll((all) => all.map(({ value }) => value));
    await page.getByLabel('whom').fill('Lima');
    await page.getByLabel('whom').press('Enter');
    await page.locator('.message img').waitFor();
    const message = await page.locator('.message').first().innerText();
    let lists = 0;
    page.on('request', (request) => {
      if (request.url().endsWith('/asking/prompts')) lists += 1;
    });
    await page.evaluate(async (token) => {
      const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` };
      await fetch('asking/tools/grow/call', { method: 'POST', headers, body: '{}' });
    }, token);
    await page.getByRole('option', { name: 'later' }).waitFor();
    return { faults, offers, message, lists, ...(await harm(page)) };
  },

  /** Resources of every kind on both pages of the list, and one that a template names. */
  async resources({ page, url, token }) {
    await visit(page, url, token, 'server', 'asking', 'resources');
    await page.getByText('6 resources').waitFor();
    const read = async (name) => {
      await page.getByRole('option', { name }).first().click();
      await page.locator('.detail h2').filter({ hasText: name }).waitFor();
      await page.getByRole('button', { name: 'Read' }).click();
      await page.locator('.content').waitFor();
      return page.locator('.content');
    };
    const guide = await read('guide');
    await guide.locator('.as-h1').waitFor();
    const links = await guide.locator('a').count();
    const html = await (await read('page')).innerText();
    await (await read('dot')).locator('img').waitFor();
    const bytes = await read('bytes.bin');
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      bytes.getByRole('button', { name: 'Download' }).click(),
    ]);
    await page.getByRole('option', { name: /city/ }).click();
    await page.getByLabel('name').fill('São Paulo');
    await page.getByLabel('lang').fill('pt');
    await page.getByRole('button', { name: 'Read' }).click();
    await page.locator('.content').waitFor();
    const city = await page.locator('.content').innerText();
    return { links, html, filename: download.suggestedFilename(), city, ...(await harm(page)) };
  },

  /** Files in a list and in an object: dropped, chosen, taken from the recent ones, removed; one that is too large. */
  async files({ page, url, token, limit }) {
    await visit(page, url, token, 'server', 'asking', 'tools', 'weigh');
    const about = await page.locator('.tool header').innerText();
    const sources = page.getByRole('group', { name: /^sources/ });
    await sources.getByText('at most').first().waitFor();
    const words = await page.locator('.arguments').innerText();
    const drop = (place, ...files) =>
      place.evaluate((node, given) => {
        const dataTransfer = new DataTransfer();
        for (const [name, text] of given) dataTransfer.items.add(new File([text], name, { type: 'text/plain' }));
        for (const type of ['dragenter', 'dragover', 'drop'])
          node.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
      }, files);
    await drop(sources.locator('.drop').last(), ['one.txt', 'first'], ['two.txt', 'second']);
    await sources.getByRole('group', { name: /two\.txt/ }).waitFor();
    await sources.getByRole('button', { name: /Remove one\.txt/ }).focus();
    await page.keyboard.press('Enter');
    const removed = await sources.getByRole('group', { name: /one\.txt/ }).count();
    await drop(sources.locator('.file-field').first(), ['huge.txt', 'x'.repeat(limit + 1)]);
    const refusal = await sources.getByRole('alert').first().innerText();
    const recent = sources.getByLabel('Recent files for sources 1');
    await recent.focus();
    const known = recent.locator('option', { hasText: 'one.txt' });
    await known.waitFor({ state: 'attached' });
    await recent.selectOption(await known.getAttribute('value'));
    const focused = await page.evaluate(() => document.activeElement.getAttribute('aria-label'));
    const third = { name: 'three.txt', mimeType: 'text/plain', buffer: Buffer.from('third') };
    await sources.locator('input[type=file][multiple]').setInputFiles([third]);
    await sources.getByRole('group', { name: /three\.txt/ }).waitFor();
    await run(page);
    return { about, words, removed, refusal, focused, said: await said(page) };
  },
};
