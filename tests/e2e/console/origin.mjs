// A page of somebody else's that wants the adapter's own address, as whoever opened it.

/** Opens the hostile page, lets it try everything from inside, and then what takes the whole window. */
async function attacked({ page, url, mount }) {
  const answers = [];
  page.on('response', (response) => {
    if (new URL(response.url()).pathname === new URL(mount).pathname) answers.push(response);
  });
  await page.goto(url);
  await page.waitForFunction(() => window.tried);
  const frames = await Promise.all(page.frames().slice(1).map((frame) => frame.evaluate(() => window.origin).catch(() => '')));
  await page.evaluate(() => window.takeOver());
  await page.waitForURL(mount);
  await page.goto(mount).catch(() => {});
  const seen = answers.map((answer) => [answer.request().method(), answer.status(), answer.headers()]);
  return { answers: seen, frames, refused: await page.evaluate(() => window.refused).catch(() => null) };
}

export const origin = { attacked };
