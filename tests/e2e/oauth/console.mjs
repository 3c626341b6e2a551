// People who sign in to the console: node console.mjs SCENE URL PERSON, told as one JSON object.
import { createRequire } from 'node:module';

const { chromium } = createRequire(`${process.env.NODE_MODULES}/`)('playwright-core');
const [scene, url, person] = process.argv.slice(2);

async function signIn(page) {
  await page.getByRole('link', { name: 'Sign in' }).first().click();
  await page.locator('input[name=person]').fill(person);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL((at) => at.href.startsWith(url));
}

const who = (page) => page.locator('.who').innerText().then((text) => text.replaceAll('\n', ' ').trim());

const scenes = {
  async work(page) {
    const context = page.context();
    await page.goto(url);
    await page.getByRole('main').getByRole('link', { name: 'Sign in' }).waitFor();
    const before = { who: await who(page), field: await page.getByLabel('Bearer token').isVisible() };
    await page.goto(`${url}#/server/upstream/tools/echo`);
    await page.getByRole('option').first().waitFor();
    await signIn(page);
    await page.getByRole('button', { name: 'Sign out' }).waitFor();
    const back = page.url();
    const signedIn = await who(page);
    const called = await page.evaluate(async () => {
      const { post } = await import(document.querySelector('link[rel=modulepreload][href$="api.js"]').href);
      return JSON.stringify(await post('upstream/tools/echo/call', { text: 'hello' }));
    });
    const readable = await page.evaluate(() => document.cookie);
    const cookies = await context.cookies();
    await page.reload();
    await page.getByRole('button', { name: 'Sign out' }).waitFor();
    const reloaded = await who(page);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('link', { name: 'Sign in' }).first().waitFor();
    const left = (await context.cookies()).filter(({ name }) => name.startsWith('mcp_adapter'));
    const told = cookies.filter(({ name }) => name.startsWith('mcp_adapter'));
    return { before, who: signedIn, back, result: called, readable, cookies: told, reloaded, after: await who(page), left };
  },

  async refused(page) {
    await page.setViewportSize({ width: 390, height: 800 });
    await page.goto(url);
    await signIn(page);
    const out = page.getByRole('button', { name: 'Sign out' });
    await out.waitFor();
    const said = await page.getByRole('alert').first().innerText();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    await out.click();
    await page.getByRole('main').getByRole('link', { name: 'Sign in' }).waitFor();
    return { said, wide };
  },

  async roles(page) {
    await page.goto(url);
    await signIn(page);
    return page.evaluate(async () => {
      const headers = { 'X-Adapter-Session': 'x'.repeat(20), 'Content-Type': 'application/json' };
      const status = (path, options) => fetch(path, { headers, ...options }).then((answer) => answer.status);
      return {
        me: await status('-/me'),
        servers: await status('-/servers'),
        accept: await status('-/pins/upstream/accept', { method: 'POST', body: '{}' }),
      };
    });
  },
};

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
try {
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(15000);
  console.log(JSON.stringify(await scenes[scene](page)));
} finally {
  await browser.close();
}
