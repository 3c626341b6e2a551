// What a reader does with tools: fill in, run, and paste elsewhere.

import { at, result, run, useToken } from './parts.mjs';

export const using = {
  /** The form and its JSON hold the same; faults stand at their fields. */
  async form(open, url) {
    const { page, reported } = await open({ timezoneId: 'UTC' });
    await page.goto(at(url, 'server', 'studio', 'tools', 'plan_trip'));
    await page.getByRole('tab', { name: 'JSON' }).click();
    const prefilled = JSON.parse(await page.getByLabel('Arguments as JSON').inputValue());
    await page.getByRole('tab', { name: 'Form' }).click();
    await run(page);
    await page.getByText('2 things are wrong').waitFor();
    const faults = await page.locator('.fault:visible').allInnerTexts();
    await page.waitForFunction(() => document.activeElement.closest('.field')?.innerText.startsWith('destination'));
    await page.getByLabel('destination').fill('Lisbon');
    await page.getByLabel('departure').fill('2026-09-01T08:30:15');
    await page.getByLabel('class').selectOption('business');
    await page.getByText('Yes', { exact: true }).click();
    await page.getByRole('button', { name: 'Add to stops' }).click();
    await page.getByLabel('place').fill('Porto');
    await page.getByRole('tab', { name: 'JSON' }).click();
    const filled = JSON.parse(await page.getByLabel('Arguments as JSON').inputValue());
    await page
      .getByLabel('Arguments as JSON')
      .fill(JSON.stringify({ ...filled, budget: 'much', unknown: [1], travellers: 3 }));
    await page.getByRole('tab', { name: 'Form' }).click();
    const budget = await page.getByLabel('budget').inputValue();
    await page.getByRole('button', { name: 'Validate' }).click();
    await page.getByText('Valid', { exact: true }).waitFor();
    await run(page);
    await result(page).getByText('success').waitFor();
    return { prefilled, faults, filled, budget, ...reported };
  },

  /** The same call for a terminal and as a script. */
  async snippets(open, url, path) {
    const { page, reported } = await open();
    await page.goto(at(url, 'server', 'studio', 'tools', 'count_words'));
    await useToken(page, 'token-of-vic');
    await page.getByRole('textbox', { name: 'path' }).fill(path);
    await page.getByRole('tab', { name: 'cURL & Python' }).click();
    const [curl, python] = await page.locator('pre.code').evaluateAll((all) => all.map((one) => one.textContent));
    await page.getByRole('button', { name: 'Copy' }).first().click();
    await page.getByRole('button', { name: 'Copied!' }).waitFor();
    return { curl, python, ...reported };
  },
};
