// Parts of the page that many scenes use.

/** The address of a place of the page at `url`. */
export const at = (url, ...parts) => `${url}#/${parts.map(encodeURIComponent).join('/')}`;

export const run = (page) => page.getByRole('button', { name: 'Run', exact: true }).click();
export const result = (page) => page.locator('.outcome');

/** Signs in by the field of the top bar. */
export async function useToken(page, token) {
  await page.getByLabel('Bearer token').fill(token);
  await page.getByLabel('Bearer token').press('Enter');
}

/** What axe finds on the page as it is now, of any impact, each with the place it is called by. */
export async function judged(page, name) {
  await page.waitForTimeout(150);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return violations.map(
    (one) =>
      `${name}: ${one.id} (${one.impact}) ${one.nodes
        .map((node) => `${node.target} ${node.failureSummary}`)
        .join(' | ')
        .slice(0, 800)}`,
  );
}
