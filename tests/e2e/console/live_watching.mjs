// What a reader sees of a running adapter, and what its page withstands.

import { at, judged, move, result, run, succeeded, visit } from './live_parts.mjs';

export const watching = {
  /** What changed since it was accepted, and whether the reader may accept it. */
  async drift({ page, url, token, accept }) {
    await visit(page, url, token, 'server', 'drifting', 'pins');
    await page.getByRole('heading', { name: '1 tool changed' }).waitFor();
    const [before, now] = [await page.locator('.one.old').innerText(), await page.locator('.one.now').innerText()];
    const offered = await page.locator('.decision button').isEnabled();
    const why = accept ? null : await page.locator('.decision .hint').innerText();
    if (accept) {
      await page.getByRole('button', { name: 'Accept…' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Accept' }).click();
      await page.getByRole('heading', { name: 'Nothing changed' }).waitFor();
      await page.goto(at(url, 'server', 'drifting', 'tools', 'read'));
      await run(page);
      await succeeded(page);
    }
    return { before, now, offered, why };
  },

  /** Somebody else's call shows up in the open table, with its stages. */
  async exchanges({ page, url, token, agent }) {
    await visit(page, url, token, 'exchanges');
    await page.getByText(/^Live/).waitFor();
    const others = page.locator('.exchange', { hasText: 'get-customer' });
    const before = await others.count();
    const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${agent}` };
    await fetch(`${url}shop/tools/get-customer/call`, { method: 'POST', headers, body: '{"code":"C-001"}' });
    await others.nth(before).waitFor();
    await others.first().locator('summary').click();
    return {
      stages: await others.first().locator('.stage-name').allInnerTexts(),
      line: await others.first().locator('summary').innerText(),
    };
  },

  /** A call of the reader's own again, found by its id; the last hour and the address of a server. */
  async again({ page, url, token }) {
    await visit(page, url, token, 'server', 'shop', 'tools', 'get-customer');
    await page.getByLabel('code').fill('C-001');
    await run(page);
    await succeeded(page);
    await move(page, 'exchanges');
    const own = page.locator('.exchange', { hasText: 'get-customer' }).first();
    await own.locator('summary').click();
    await own.getByRole('button', { name: 'Run again…' }).click();
    await page.locator('.again').waitFor();
    const [note, code] = [await page.locator('.again').innerText(), await page.getByLabel('code').inputValue()];
    await run(page);
    await succeeded(page);
    await move(page, 'server/shop/connect');
    await page.locator('.connect pre').first().waitFor();
    const entry = await page.locator('.connect').innerText();
    await move(page, 'servers');
    await page.locator('.activity-chart rect').first().waitFor();
    return { note, code, entry, told: await page.locator('.activity > .told').innerText() };
  },

  /** The views that only tell. */
  async around({ page, url, token }) {
    await visit(page, url, token, 'sessions');
    await page.getByRole('cell').first().waitFor();
    const sessions = await page.locator('tbody').innerText();
    await page.getByRole('link', { name: 'Configuration' }).click();
    await page.locator('.yaml').waitFor();
    return { sessions, configuration: await page.locator('.yaml').innerText() };
  },

  /** Views under axe; nothing is wider than the page. */
  async axe({ page, url, token }) {
    const found = [];
    const look = async (name) => {
      found.push(...(await judged(page, name)));
      const { wide, room } = await page.evaluate(() => ({
        wide: document.documentElement.scrollWidth,
        room: innerWidth,
      }));
      if (wide > room) found.push(`${name} is ${wide} pixels wide, of ${room}`);
    };
    await visit(page, url, token);
    await page.getByRole('heading', { name: 'demo', exact: true }).waitFor();
    await look('servers');
    for (const [first, view] of [
      ['.exchange, .nothing', 'exchanges'],
      ['.scope, .nothing', 'files'],
      ['tbody tr', 'sessions'],
      ['.yaml', 'config'],
      ['.pins-head', 'server/drifting/pins'],
      ['.connect pre', 'server/drifting/connect'],
      ['.row', 'server/demo'],
      ['.row', 'server/asking/prompts'],
      ['.tool h2', 'server/asking/prompts/greet'],
      ['.tool h2', `server/asking/resources/${encodeURIComponent('asking://city/{name}{?lang}')}`],
      ['.drop', 'server/asking/tools/weigh'],
    ]) {
      await move(page, view);
      await page.locator(first).first().waitFor();
      await look(view);
    }
    await move(page, 'server/shop/tools/sales-by-month');
    await run(page);
    await succeeded(page);
    await look('result');
    await move(page, 'server/asking/tools/form');
    await page.getByRole('heading', { name: 'form', exact: true }).waitFor();
    await run(page);
    await page.locator('.question').waitFor();
    await look('question');
    return { found };
  },

  /** Nothing that hostile servers say runs. */
  async hostile({ page, url, token }) {
    await visit(page, url, token, 'server', 'hostile');
    await page.getByRole('option').nth(2).waitFor();
    await page.getByRole('option').nth(1).click();
    await page.locator('.tool h2').waitFor();
    await move(page, 'server/hostile/tools/strike');
    await page.getByRole('heading', { name: 'strike' }).waitFor();
    for (const tab of ['Schema', 'cURL & Python', 'Run'])
      await page.getByRole('tab', { name: tab, exact: true }).click();
    await run(page);
    await result(page).getByText('error', { exact: true }).waitFor();
    for (const plot of await page.locator('.plot').all()) await plot.scrollIntoViewIfNeeded();
    await page.frameLocator('.plot iframe').first().locator('svg').first().waitFor();
    await page.getByRole('tab', { name: 'Raw MCP' }).click();
    for (const view of ['exchanges', 'sessions', 'server/hostile/pins']) {
      await move(page, view);
      await page.waitForTimeout(200);
    }
    const harmed = await Promise.all(page.frames().map((frame) => frame.evaluate(() => window.harmed ?? null)));
    const markup = await page.evaluate(
      () => document.querySelectorAll('[onerror], [onload], [onclick], main script, main b').length,
    );
    return { harmed, markup };
  },

  /** Ten megabytes of text and five thousand tools; how long clicks waited, in milliseconds. */
  async heavy({ page, url, token }) {
    const waits = [];
    const timed = async (act) => {
      const before = Date.now();
      await act();
      waits.push(Date.now() - before);
    };
    const click = () => page.getByRole('button', { name: /(Dark|Light) theme/ }).click();
    await visit(page, url, token, 'server', 'vast');
    await page.getByText('5,000 tools').waitFor();
    await timed(click);
    const rows = await page.getByRole('option').count();
    await timed(() => page.getByLabel('Filter the tools').fill('4999'));
    await page.getByRole('option', { name: 'tool_4999' }).click();
    await page.getByRole('heading', { name: 'tool_4999' }).waitFor();
    await move(page, 'server/hostile/tools/pour');
    await run(page);
    for (let shown = false; !shown; shown = await page.getByRole('button', { name: 'Show more' }).isVisible())
      await timed(click);
    await timed(() => page.getByRole('button', { name: 'Show more' }).click());
    await timed(() => page.getByRole('tab', { name: 'Raw MCP' }).click());
    await timed(click);
    return { rows, waits };
  },
};
