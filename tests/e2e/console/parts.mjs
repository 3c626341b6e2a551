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
