// A person who opens a link, says who they are, and gives a grant: `node grant.mjs LINK TOKEN [SCREENSHOT]`.

import { AXE, browser } from './browser.mjs';

const [link, token, picture] = process.argv.slice(2);
const launched = await browser();
try {
  const { page, reported } = await launched.open({ narrow: true });
  await page.addInitScript(AXE);
  const seen = { titles: [], axe: [], violations: [] };
  async function look() {
    seen.titles.push(await page.title());
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
    seen.axe.push(...violations.map(({ id }) => id));
    seen.violations.push(...(await page.evaluate(() => window.violations)));
  }
  await page.goto(link);
  await look();
  if (picture) await page.screenshot({ path: picture });
  await page.getByLabel(/Your token/).fill(token);
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByRole('heading', { name: /access/i }).and(page.locator(':not(:text("?"))')).waitFor();
  await look();
  console.log(JSON.stringify({ ...seen, errors: reported.errors, text: await page.innerText('main') }));
} finally {
  await launched.close();
}
