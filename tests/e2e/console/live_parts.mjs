// Parts of the page that scenes on the running adapter use.

import { at, result } from './parts.mjs';

export { at, result, run } from './parts.mjs';

export const succeeded = (page) => result(page).getByText('success', { exact: true }).waitFor();

/** Signs in where the page asks for it, and waits until the page knows who that is. */
export async function signIn(page, token) {
  const field = page.getByLabel('Bearer token');
  // The page opens the field by itself when it is refused. A click at that moment closes it, and the next one opens it.
  for (let click = 0; click < 3 && !(await field.isVisible()); click += 1) {
    await page.getByRole('button', { name: 'Token' }).click();
  }
  await field.fill(token);
  await field.press('Enter');
  await page.getByText(/^You are /).waitFor({ state: 'attached' });
}

/** Opens a place of the console as whoever has `token`. */
export async function visit(page, url, token, ...parts) {
  await page.goto(at(url, ...parts));
  if (token) await signIn(page, token);
}

/** Goes to another place as a link would. */
export const move = (page, place) =>
  page.evaluate((hash) => {
    location.hash = hash;
  }, `#/${place}`);
