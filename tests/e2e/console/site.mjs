// What is cut or squeezed on a page of the documentation: `node site.mjs URL WIDTH…`, told as JSON by width.

import { browser } from './browser.mjs';

const [url, ...widths] = process.argv.slice(2);
const launched = await browser();
try {
  const { page } = await launched.open();
  const seen = {};
  for (const width of widths.map(Number)) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto(url);
    seen[width] = await page.evaluate(() => {
      const letter = document.createElement('canvas').getContext('2d');
      /** How many letters of its own font fit into a line of an element. */
      const letters = (element) => {
        letter.font = getComputedStyle(element).font;
        return Math.floor(element.clientWidth / letter.measureText('n').width);
      };
      const inside = (element) => {
        const { left, right, width } = element.getBoundingClientRect();
        return width === 0 || (left >= -1 && right <= document.documentElement.clientWidth + 1);
      };
      const all = (selector) => [...document.querySelectorAll(`article ${selector}`)];
      return {
        page: document.documentElement.scrollWidth,
        scrolls: all('.table-wrapper').filter((one) => one.scrollWidth > one.clientWidth + 1).length,
        outside: all(':is(h1, h2, p, td, code)').filter((one) => !inside(one)).map((one) => one.textContent).slice(0, 5),
        texts: all('td:last-child').length,
        letters: Math.min(...all('td:last-child').map(letters)),
      };
    });
  }
  console.log(JSON.stringify(seen));
} finally {
  await launched.close();
}
