// What a reader oversees: conditions, the last hour, connections, calls run again, and every view by the keyboard alone.

import { at, result, run, useToken } from './parts.mjs';

const GONE = 'upload://sessions/4be1/gone';

/** What the focus is on says; nothing while it is on no control. */
const focused = (page) =>
  page.evaluate(() => {
    const { activeElement: one, body } = document;
    return one === body ? '' : (one.getAttribute('aria-label') ?? one.textContent).trim();
  });

/** Presses a key until the focus is on what says `text`. */
async function reach(page, text, key = 'Tab', most = 80) {
  for (let press = 0; press < most; press += 1) {
    await page.keyboard.press(key);
    if ((await focused(page)).includes(text)) return;
  }
  throw new Error(`${key} never reached “${text}”; it is at “${await focused(page)}”`);
}

/** Goes to a view by the rail, from wherever the focus is. */
async function goTo(page, view) {
  await page.evaluate(() => document.activeElement.blur());
  await reach(page, view);
  await page.keyboard.press('Enter');
  await page.waitForFunction((title) => document.title.startsWith(title) && document.activeElement.tagName === 'H1', view);
}

export const overseeing = {
  /** The overview in words; a term in its tooltip; the last hour as a picture and as a table. */
  async overview(open, url) {
    const { page, reported } = await open();
    await page.goto(url);
    const card = (id) => page.locator('.server', { has: page.getByRole('heading', { name: id, exact: true }) });
    await card('browser').waitFor();
    const words = await page.locator('.server .status').allInnerTexts();
    const looks = await page.locator('.server .dot').evaluateAll((all) => all.map((one) => one.className));
    const notes = await page.locator('.server .notes').allInnerTexts();
    const said = await card('browser').locator('.said').first().innerText();
    const era = card('browser').getByRole('button', { name: '2025-era' });
    await era.focus();
    const tip = await page.getByRole('tooltip').innerText();
    const described = await era.evaluate((face) => document.getElementById(face.getAttribute('aria-describedby')).textContent);
    await page.keyboard.press('ArrowRight');
    const next = await focused(page);
    await page.keyboard.press('Escape');
    const shown = await page.getByRole('tooltip').count();
    const mount = await page.locator('.mount').innerText();
    const chart = page.locator('.activity-chart');
    const label = await chart.getAttribute('aria-label');
    const bars = await chart.locator('rect').count();
    await page.getByText('As a table').click();
    const rows = await page.locator('.activity-table tbody tr').count();
    const told = await page.locator('.activity > .told').innerText();
    await page.goto(at(url, 'sessions'));
    await page.getByText('Cursor 2.1.0').waitFor();
    const clients = await page.locator('tbody tr td:nth-child(2)').allInnerTexts();
    const markup = await page.locator('main img').count();
    return { words, looks, notes, mount, said, tip, described, next, shown, label, bars, rows, told, clients, markup, ...reported };
  },

  /** The entry of each client, and what is copied of one. */
  async connect(open, url) {
    const { page, reported } = await open({ permissions: ['clipboard-read', 'clipboard-write'] });
    await page.goto(at(url, 'server', 'studio', 'connect'));
    await page.locator('.connect pre').first().waitFor();
    const first = await page.locator('.connect pre').first().innerText();
    const addresses = await page.locator('.connect h2', { hasText: 'Address' }).allInnerTexts();
    const address = await page.getByLabel('Address of server studio').innerText();
    const own = page.locator('.connect > section').last();
    const entries = {};
    const links = {};
    for (const tab of await own.getByRole('tab').all()) {
      await tab.click();
      for (const link of await own.getByRole('link').all()) links[await link.innerText()] = await link.getAttribute('href');
      entries[await tab.innerText()] = await own.getByLabel(/^Entry for/).innerText();
    }
    await own.getByRole('tab', { name: 'Claude Desktop' }).click();
    const notice = await own.locator('.notice').innerText();
    await own.getByRole('tabpanel').getByRole('button', { name: 'Copy' }).first().click();
    await page.getByRole('button', { name: 'Copied!' }).waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    return { first, addresses, address, entries, links, notice, copied, ...reported };
  },

  /** A call of one's own again, with its arguments as long as they are kept; the form and its result on a wide screen. */
  async again(open, url) {
    const { page, reported } = await open({ viewport: { width: 1800, height: 900 } });
    const signIn = async (token) => {
      await useToken(page, token);
      await page.getByText(/^You are /).waitFor({ state: 'attached' });
    };
    const enter = async (token) => {
      await page.getByRole('button', { name: 'Token' }).click();
      await signIn(token);
    };
    const anew = async (tool) => {
      await page.goto(at(url, 'exchanges'));
      await page.locator('.exchange').first().waitFor();
      // Others come all the time, and would take the place of the first.
      await page.getByRole('button', { name: 'Pause' }).click();
      const own = page.locator('.exchange', { hasText: tool }).first();
      await own.locator('summary').click();
      await own.getByRole('button', { name: 'Run again…' }).click();
      await page.locator('.again').waitFor();
      return page.locator('.again').innerText();
    };
    await page.goto(at(url, 'server', 'studio', 'tools', 'count_words'));
    await signIn('token-of-olga');
    await page.getByRole('textbox', { name: 'path' }).fill(GONE);
    await run(page);
    await result(page).getByText('success').waitFor();
    const [form, outcome] = [await page.locator('.arguments').boundingBox(), await result(page).boundingBox()];
    const kept = await anew('count_words');
    const path = await page.locator('.file-field textarea').inputValue();
    await page.goto(at(url, 'exchanges'));
    // Every third exchange is somebody else's.
    const foreign = page.locator('.exchange', { hasText: 'mcp' }).first();
    await foreign.locator('summary').click();
    const offered = await foreign.getByRole('button', { name: 'Run again…' }).count();
    await enter('token-of-vic');
    const stranger = await anew('count_words');
    const left = await page.locator('.file-field textarea').inputValue();
    return { kept, path, offered, stranger, left, beside: outcome.x > form.x + form.width, ...reported };
  },

  /** Every view and what opens in it, with nothing but keys. */
  async keyboard(open, url) {
    const { page, reported } = await open();
    const [calls, seen] = [[], []];
    page.on('request', (request) => request.method() === 'POST' && calls.push(new URL(request.url()).pathname));
    await page.goto(url);
    await page.getByRole('heading', { name: 'studio' }).waitFor();
    await page.keyboard.press('Tab');
    seen.push(await focused(page));
    await page.keyboard.press('Enter');
    await reach(page, 'As a table');
    await page.keyboard.press('Enter');
    await page.locator('.activity-table tbody tr').first().waitFor();
    await reach(page, '2026-era');
    seen.push(await page.getByRole('tooltip').innerText());
    for (const view of ['Exchanges', 'Files', 'Sessions', 'Configuration', 'Overview']) {
      await goTo(page, view);
      seen.push(view);
      if (view === 'Exchanges') {
        await page.locator('.exchange').first().waitFor();
        await reach(page, 'Pause');
        await page.keyboard.press('Enter');
        await reach(page, 'tools/call');
        await page.keyboard.press('ArrowDown');
        await page.keyboard.press('Enter');
        await page.locator('.exchange[open] .stage-row').first().waitFor();
      }
    }
    await reach(page, 'studio');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => location.hash === '#/server/studio');
    await reach(page, 'Pins');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: '2 tools changed' }).waitFor();
    await reach(page, 'Accept…');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    seen.push(await focused(page));
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await reach(page, 'Connect', 'Shift+Tab');
    await page.keyboard.press('Enter');
    await page.locator('.connect pre').first().waitFor();
    await reach(page, 'Claude Code');
    await page.keyboard.press('ArrowRight');
    await page.getByLabel('Entry for Claude Desktop').waitFor();
    seen.push(await focused(page));
    await reach(page, 'Tools', 'Shift+Tab');
    await page.keyboard.press('Enter');
    await page.getByRole('option').first().waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('count_words');
    await page.locator('.hit').first().waitFor();
    await page.keyboard.press('Enter');
    await page.locator('.tool h2').waitFor();
    await reach(page, 'Run');
    await page.keyboard.press('ArrowRight');
    seen.push(await focused(page));
    await page.keyboard.press('ArrowLeft');
    await reach(page, 'Form');
    await page.keyboard.press('Tab');
    await page.keyboard.type('upload://sessions/4be1/0c11');
    await page.keyboard.press('Control+Enter');
    await result(page).getByText('success').waitFor();
    return { seen, calls, ...reported };
  },
};
