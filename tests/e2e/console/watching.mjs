// What a reader looks at: plots, exchanges, files and the page on a phone.

import { at, run } from './parts.mjs';

export const watching = {
  /** Charts and diagrams are drawn in frames that have no origin. */
  async plots(open, url) {
    const { page, reported } = await open();
    await page.goto(at(url, 'server', 'studio', 'tools', 'report/weekly'));
    await run(page);
    for (const frame of [0, 1]) {
      await page.locator('.plot iframe').nth(frame).scrollIntoViewIfNeeded();
      await page.frameLocator('.plot iframe').nth(frame).locator('svg').first().waitFor();
    }
    const origins = await Promise.all(
      page
        .frames()
        .slice(1)
        .map((frame) => frame.evaluate(() => window.origin)),
    );
    const texts = await Promise.all(
      page
        .frames()
        .slice(1)
        .map((frame) => frame.evaluate(() => document.body.innerText)),
    );
    return { origins, texts, violations: await page.evaluate(() => window.violations), ...reported };
  },

  /** What happens is shown as it happens; it can be held, searched and opened. */
  async exchanges(open, url) {
    const { page, reported } = await open();
    await page.goto(at(url, 'exchanges'));
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

  /** Who needs somebody stands first, and its page says why, on a phone too; a link to open is a link. */
  async ill(open, url) {
    const { page, reported } = await open({ narrow: true });
    await page.goto(url);
    await page.locator('.card.server').nth(2).waitFor();
    const order = await page.locator('.card.server h2').allInnerTexts();
    await page.goto(at(url, 'server', 'warehouse'));
    const why = await page.locator('.server-bar .notes').innerText();
    await page.goto(at(url, 'server', 'browser', 'prompts'));
    const said = page.getByRole('main').getByRole('alert');
    await said.waitFor();
    const links = await said
      .getByRole('link')
      .evaluateAll((all) => all.map(({ href, rel, target, textContent }) => ({ href, rel, target, text: textContent })));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    return { order, why, links, wide, ...reported };
  },

  /** What tools are called for people stands beside their names, and is found. */
  async titles(open, url) {
    const { page, reported } = await open();
    await page.goto(at(url, 'server', 'studio', 'tools', 'draw_landscape'));
    await page.getByRole('heading', { name: 'draw_landscape' }).waitFor();
    const head = await page.locator('.tool > header').innerText();
    const rows = await page.getByRole('option').allInnerTexts();
    await page.getByLabel('Filter the tools of studio').fill('catalogue import');
    await page.getByRole('status').getByText('1 of').waitFor();
    return { head, rows, ...reported };
  },

  /** The other views, and the theme, the token and the rail. */
  async around(open, url) {
    const { page, reported } = await open({ narrow: true });
    await page.goto(`${url}studio`);
    await page.getByRole('option').first().waitFor();
    await page.getByRole('button', { name: 'Menu' }).click();
    await page.getByRole('link', { name: 'Files' }).click();
    await page.getByText('hamlet.txt').waitFor();
    await page.getByRole('button', { name: 'Preview morning.png' }).click();
    await page.getByRole('img', { name: 'Picture: morning.png' }).waitFor();
    const quota = await page.getByRole('meter').getAttribute('aria-valuenow');
    await page.goto(at(url, 'sessions'));
    await page.getByText('4be1c0de').waitFor();
    await page.goto(at(url, 'config'));
    await page.locator('.yaml').waitFor();
    await page.getByRole('button', { name: 'Dark theme' }).click();
    await page.reload();
    const theme = await page.evaluate(() => document.documentElement.getAttribute('data-theme'));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    return { quota, theme, wide, ...reported };
  },
};
