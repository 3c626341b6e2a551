// What the page withstands: axe, and a hostile tool.

import { AXE } from './browser.mjs';
import { at, judged, result, run } from './parts.mjs';

/** What opens over a view or in it: tooltip, table, search, token, menu, dialog, an exchange with its stages. */
async function opened(page, url, narrow, look) {
  await page.goto(at(url, 'servers'));
  await page.getByText('As a table').click();
  await page.locator('.term').first().focus();
  await page.getByRole('tooltip').waitFor();
  await look('tooltip and table');
  await page.getByRole('button', { name: 'Token' }).click();
  await look('token');
  await page.getByLabel('Find a tool, a server or a view').fill('count');
  await page.locator('.found').waitFor();
  await look('search');
  await page.keyboard.press('Escape');
  if (narrow) {
    await page.getByRole('button', { name: 'Menu' }).click();
    await look('menu');
    await page.keyboard.press('Escape');
  }
  await page.goto(at(url, 'server', 'studio', 'pins'));
  await page.getByRole('button', { name: 'Accept…' }).click();
  await page.getByRole('dialog').waitFor();
  await look('dialog');
  await page.keyboard.press('Escape');
  await page.goto(at(url, 'exchanges'));
  await page.locator('.exchange summary').nth(1).click();
  await look('exchange');
}

export const rough = {
  /** Each view in one color scheme, under axe. */
  async axe(open, url, colorScheme) {
    const found = [];
    for (const narrow of [false, true]) {
      const { page } = await open({ colorScheme, narrow });
      await page.addInitScript(AXE);
      const look = async (name) => found.push(...(await judged(page, `${name}${narrow ? ' (narrow)' : ''}`)));
      for (const view of [
        'servers',
        'exchanges',
        'files',
        'sessions',
        'config',
        'server/studio',
        'server/studio/pins',
        'server/studio/connect',
        'nowhere',
      ]) {
        await page.goto(`${url}#/${view}`);
        await page.reload();
        await page.locator('h1, .nothing').first().waitFor();
        await look(view);
      }
      await opened(page, url, narrow, look);
      await page.goto(at(url, 'server', 'studio', 'tools', 'plan_trip'));
      await page.getByRole('button', { name: 'Add to stops' }).click();
      await look('form');
      await page.goto(at(url, 'server', 'studio', 'tools', 'report/weekly'));
      await run(page);
      await page.locator('.prose h4, .prose .as-h2').first().waitFor();
      await look('result');
      await page.context().close();
    }
    return { found };
  },

  /** Nothing that a hostile tool says runs, in the page or in a frame. */
  async hostile(open, url) {
    const { page, reported } = await open();
    await page.goto(at(url, 'server', 'hostile'));
    await page.getByRole('option').nth(2).waitFor();
    await page.getByRole('option').nth(1).click();
    await page.locator('.tool h2').waitFor();
    await page.goto(at(url, 'server', 'hostile', 'tools', 'strike'));
    await page.getByRole('tab', { name: 'Schema' }).click();
    await page.getByRole('tab', { name: 'cURL & Python' }).click();
    await page.getByRole('tab', { name: 'Run' }).click();
    await run(page);
    await result(page).getByText('error', { exact: true }).waitFor();
    for (const plot of await page.locator('.plot').all()) await plot.scrollIntoViewIfNeeded();
    await page.frameLocator('.plot iframe').first().locator('svg').first().waitFor();
    for (const link of await page.locator('.outcome a').all()) await link.click({ trial: true });
    const hrefs = await page.locator('.outcome a').evaluateAll((links) => links.map((link) => link.href));
    const images = await page
      .locator('.outcome img')
      .evaluateAll((all) => all.map((image) => [...image.attributes].map(({ name }) => name)).flat());
    await page.getByRole('tab', { name: 'Raw MCP' }).click();
    await page.keyboard.press('/');
    await page.keyboard.type('onerror');
    await page.getByRole('option').first().waitFor();
    const harmed = await Promise.all(page.frames().map((frame) => frame.evaluate(() => window.harmed ?? null)));
    const markup = await page.evaluate(
      () => document.querySelectorAll('[onerror], [onload], [onclick], main script, main svg [onload], main b').length,
    );
    return { harmed, markup, hrefs, images, violations: await page.evaluate(() => window.violations), ...reported };
  },
};
