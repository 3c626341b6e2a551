// An operator who revokes the one grant that there is, on the console's page: `node revoke.mjs CONSOLE TOKEN`.

import { AXE, browser } from './browser.mjs';
import { visit } from './live_parts.mjs';

const [url, token] = process.argv.slice(2);
const launched = await browser();
try {
  const { page, reported } = await launched.open();
  await page.addInitScript(AXE);
  await visit(page, url, token, 'sessions');
  const grants = page.getByRole('region', { name: 'Grants' });
  await grants.waitFor();
  const row = await grants.locator('tbody tr').innerText();
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  await grants.getByRole('button', { name: 'Revoke' }).click();
  await page.getByText('No grants', { exact: true }).waitFor();
  const said = await page.locator('#toasts').innerText();
  const axe = violations.map(({ id }) => id);
  console.log(
    JSON.stringify({ row, said, axe, violations: await page.evaluate(() => window.violations), errors: reported.errors }),
  );
} finally {
  await launched.close();
}
