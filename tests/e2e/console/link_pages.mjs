// node link_pages.mjs: scenes on the pages of signed links, played as in scenes.mjs.

import { createInterface } from 'node:readline';

import { AXE, browser } from './browser.mjs';

const chromium = await browser();
process.once('SIGTERM', () => chromium.close().finally(() => process.exit()));

const file = (name, content, mimeType = 'text/plain') => ({ name, mimeType, buffer: Buffer.from(content) });
const PHOTO = Buffer.from('89504e470d0a1a0a', 'hex');

/** A page that was opened, `look()` at what is wrong with it as it is now, and `seen` at the end. */
async function opened(url, options) {
  const { page, reported } = await chromium.open(options);
  await page.addInitScript(AXE);
  const statuses = [];
  page.on('response', (response) => statuses.push(response.status()));
  const wrong = [];
  async function look() {
    const run = () => window.axe.run(document, { resultTypes: ['violations'] });
    for (const { id, nodes } of (await page.evaluate(run)).violations) wrong.push([id, nodes.map(({ html }) => html)]);
    wrong.push(...(await page.evaluate(() => window.violations)));
  }
  await page.goto(url);
  const text = (selector) => page.locator(selector).innerText();
  const seen = (more) => ({ wrong, statuses, ...reported, ...more });
  return { page, look, seen, text };
}

const done = (page) => page.locator('#done').waitFor();
const wide = (page) => page.evaluate(() => document.documentElement.scrollWidth);

const SCENES = {
  /** `pictures` is a directory for pictures of the page, before and after. */
  async phone(url, pictures) {
    const draw = async (name) => pictures && page.screenshot({ path: `${pictures}/${name}.png` });
    const { page, look, seen, text } = await opened(url, { narrow: true });
    await look();
    for (const name of ['one.png', 'two.png']) {
      await page.setInputFiles('#photo', { name, mimeType: 'image/png', buffer: PHOTO });
    }
    await page.locator('#list li').nth(1).waitFor();
    await look();
    await draw('upload-page-chosen');
    const before = await wide(page);
    await page.locator('#send').tap();
    await done(page);
    await look();
    await draw('upload-page-done');
    const handles = await page.locator('#handles code').allInnerTexts();
    await page.goto(url);
    await look();
    return seen({ handles, wide: [before, await wide(page)], again: await text('main') });
  },

  async keyboard(url) {
    const { page, look, seen, text } = await opened(url);
    const chosen = page.waitForEvent('filechooser');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await (await chosen).setFiles([file('one.txt', 'one'), file('two.txt', 'two')]);
    await page.locator('#list li').nth(1).waitFor();
    const names = [];
    for (const key of ['Tab', 'Enter', 'Enter']) {
      await page.keyboard.press(key);
      names.push(await page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent));
    }
    await done(page);
    const focused = await page.evaluate(() => document.activeElement.id);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.getByText('Copied.').waitFor();
    await look();
    return seen({ names, focused, arrived: await text('#handles') });
  },

  async plain(url, name) {
    const { page, seen, text } = await opened(url, { javaScriptEnabled: false });
    await page.setInputFiles('#files', [file(name, 'one'), file('two.txt', 'two')]);
    await page.locator('#send').click();
    await page.getByRole('heading', { name: 'Done: 2 files arrived' }).waitFor();
    const handles = await page.locator('code').allInnerTexts();
    const told = await text('main');
    await page.goto(url);
    return seen({ handles, told, again: await text('main'), controls: await page.locator('button, input').count() });
  },

  async dark(url) {
    const { page, look, seen } = await opened(url, { colorScheme: 'dark' });
    await page.setInputFiles('#files', file('a.txt', 'a'));
    await look();
    const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await page.locator('#send').click();
    await done(page);
    await look();
    return seen({ paper });
  },

  async hostile(url, name) {
    const { page, look, seen, text } = await opened(url);
    await page.setInputFiles('#files', file(name, 'x'));
    await look();
    const listed = await text('#list span');
    await page.locator('#send').click();
    await done(page);
    await look();
    return seen({ listed, arrived: await text('#handles'), made: await page.locator(':is(#list, #handles, #error) :is(img, b, script)').count() });
  },

  async retried(url, large) {
    const { page, look, seen, text } = await opened(url);
    const told = [];
    await page.setInputFiles('#files', file('large.bin', 'x'.repeat(Number(large))));
    await page.locator('#send').click();
    await page.getByRole('button', { name: 'Try again' }).waitFor();
    told.push(await text('#error'));
    await page.getByRole('button', { name: 'Remove' }).click();
    await page.setInputFiles('#files', file('small.txt', 'small'));
    await page.context().setOffline(true);
    await page.locator('#send').click();
    await page.locator('#error:has-text("connection")').waitFor();
    told.push(await text('#error'));
    await page.context().setOffline(false);
    let reached;
    const waiting = new Promise((resolve) => { reached = resolve; });
    await page.route('**', reached, { times: 1 });
    await page.locator('#send').click();
    await waiting;
    await page.locator('#cancel').click();
    told.push(await text('#status'));
    await look();
    await page.getByRole('button', { name: 'Try again' }).click();
    await done(page);
    return seen({ told, arrived: await text('#handles') });
  },

  async fault(url, large) {
    const { page, look, seen, text } = await opened(url);
    await page.setInputFiles('#files', file('large.bin', 'x'.repeat(Number(large))));
    await page.locator('#send').click();
    await look();
    return seen({ told: await text('#error') });
  },

  async dropped(url) {
    const { page, seen, text } = await opened(url);
    await page.evaluate(() => {
      const carrying = (name) => {
        const carried = new DataTransfer();
        carried.items.add(new File([name], name));
        return carried;
      };
      document.dispatchEvent(new DragEvent('drop', { dataTransfer: carrying('dropped.txt'), cancelable: true }));
      document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: carrying('pasted.txt') }));
    });
    await page.locator('#send').click();
    await done(page);
    return seen({ arrived: await text('#handles') });
  },

  async framed(elsewhere) {
    const { page, seen } = await opened(elsewhere);
    const frame = page.frames()[1];
    return seen({ framed: await frame.locator('form').count(), at: frame.url() });
  },

  async elsewhere(place, url) {
    const { page } = await chromium.open();
    await page.goto(place);
    const sent = ([link, credentials]) => {
      const form = new FormData();
      form.append('file', new File(['x'], 'widget.txt'));
      return fetch(link, { method: 'POST', body: form, credentials, headers: { Accept: 'application/json', 'X-A': '1' } })
        .then(async (answer) => [answer.status, (await answer.json()).count ?? 0], () => ['blocked', 0]);
    };
    const frame = page.frames()[1];
    return {
      origin: await frame.evaluate(() => origin),
      included: await frame.evaluate(sent, [url, 'include']),
      bare: await frame.evaluate(sent, [url.split('?')[0], 'omit']),
      sandboxed: await frame.evaluate(sent, [url, 'omit']),
    };
  },

  async widget(chat) {
    const { page, reported } = await chromium.open();
    await page.goto(chat);
    const frame = page.frames()[1];
    const axe = async () => {
      await frame.evaluate(AXE);
      const { violations } = await frame.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
      return violations.map(({ id }) => id);
    };
    await frame.locator('#form').waitFor();
    const wrong = await axe();
    const paper = await frame.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await frame.locator('#files').setInputFiles([file('<b>one</b>.txt', 'one'), file('two.txt', 'two')]);
    await frame.locator('#send').click();
    await frame.locator('#done').waitFor();
    await frame.locator('#status:not(:empty)').waitFor();
    wrong.push(...(await axe()));
    return {
      ...reported,
      wrong,
      paper,
      heard: await page.evaluate(() => window.heard),
      handles: await frame.locator('#handles code').allInnerTexts(),
      status: await frame.locator('#status').innerText(),
    };
  },

  async files(chat) {
    const { page, reported } = await chromium.open();
    await page.goto(chat);
    const frame = page.frames()[1];
    await frame.locator('table').waitFor();
    await frame.waitForFunction(() => document.querySelector('img')?.complete);
    await frame.evaluate(AXE);
    const run = () => window.axe.run(document, { resultTypes: ['violations'] });
    const wrong = (await frame.evaluate(run)).violations.map(({ id }) => id);
    for (const button of await frame.locator('button').all()) await button.click();
    await page.waitForFunction(() => window.heard.filter(([method]) => method.startsWith('ui/') && !method.includes('notif')).length === 3);
    return {
      ...reported,
      wrong,
      names: await frame.locator('li > span').allInnerTexts(),
      width: await frame.evaluate(() => document.querySelector('img').naturalWidth),
      cells: await frame.locator('tr').evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))),
      made: await frame.locator('b').count(),
      heard: await page.evaluate(() => window.heard.filter(([method]) => !method.includes('notif'))),
    };
  },

  async opened_elsewhere(chat) {
    const { page } = await chromium.open();
    await page.goto(chat);
    const frame = page.frames()[1];
    await frame.locator('#browser').click();
    await page.waitForFunction(() => window.heard.some(([method]) => method === 'ui/open-link'));
    return { heard: await page.evaluate(() => window.heard) };
  },

  async failed(url) {
    const { page, look, seen, text } = await opened(url, { narrow: true });
    await look();
    return seen({ title: await page.title(), told: await text('main'), controls: await page.locator('button, input, a').count() });
  },

  async file(url) {
    const { page, look, seen, text } = await opened(url);
    await look();
    const told = await text('main');
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'Download' }).click()]);
    const stream = await download.createReadStream();
    const pieces = await stream.toArray();
    return seen({ told, name: download.suggestedFilename(), content: Buffer.concat(pieces).toString() });
  },

  async saved(url) {
    const { page, reported } = await chromium.open();
    const [download] = await Promise.all([page.waitForEvent('download'), page.goto(url).catch(() => null)]);
    return { ...reported, name: download.suggestedFilename() };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { scene, url, words } = JSON.parse(line);
  const seen = await SCENES[scene](url, ...words).catch((failure) => ({ failed: failure.stack }));
  console.log(JSON.stringify(seen));
  await chromium.clear();
}
await chromium.close();
