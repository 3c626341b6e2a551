// A browser on the console's page, and what it reported meanwhile.

import { createRequire } from 'node:module';

const require = createRequire(`${process.env.NODE_MODULES}/`);
const { chromium } = require('playwright-core');

export const AXE = require('node:fs').readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

// No request leaves the machine: chromium would look for updates, and try QUIC and its variations service.
const QUIET = [
  '--no-sandbox',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

const WATCH = `
  window.violations = [];
  document.addEventListener('securitypolicyviolation', (event) => window.violations.push(event.violatedDirective + ' ' + event.blockedURI + ' ' + event.sample));
`;

/** The system's browser; `open(options)` is a page of it in a context of its own, which `clear` closes. */
export async function browser() {
  const launched = await chromium.launch({ executablePath: process.env.CHROMIUM, args: QUIET });
  return {
    close: () => launched.close(),
    clear: () => Promise.all(launched.contexts().map((context) => context.close())),
    async open({ narrow = false, ...options } = {}) {
      const size = narrow
        ? { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }
        : { viewport: { width: 1280, height: 800 } };
      const context = await launched.newContext({ ...size, reducedMotion: 'reduce', ...options });
      await context.addInitScript(WATCH);
      const page = await context.newPage();
      const reported = { dialogs: [], errors: [], elsewhere: [] };
      page.on('dialog', (dialog) => {
        reported.dialogs.push(dialog.message());
        dialog.dismiss();
      });
      page.on('pageerror', (error) => reported.errors.push(String(error.stack)));
      page.on('request', (request) => {
        const { protocol, hostname } = new URL(request.url());
        if (!['data:', 'blob:'].includes(protocol) && hostname !== '127.0.0.1') reported.elsewhere.push(request.url());
      });
      page.setDefaultTimeout(30_000);
      return { page, reported };
    },
  };
}
