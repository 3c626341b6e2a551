// What a reader sees of a running adapter, and what its page withstands.

import { at, move, run, succeeded, visit } from './live_parts.mjs';

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

  /** The views that only tell. */
  async around({ page, url, token }) {
    await visit(page, url, token, 'sessions');
    await page.getByRole('cell').first().waitFor();
    const sessions = await page.locator('tbody').innerText();
    await page.getByRole('link', { name: 'Configuration' }).click();
    await page.locator('.yaml').waitFor();
    return { sessions, configuration: await page.locator('.yaml').innerText() };
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
