// What leaves the page: copies to the clipboard and downloads.

import { announce, button, h, toast } from './dom.js';

const SAID_FOR = 1500;

/** A button that copies `text()`, and says so for a moment. */
export function copyButton(label, text, look = 'small') {
  const copy = button(
    label,
    async () => {
      if (!(await copied(await text()))) {
        toast('This browser does not allow the page to copy.', { bad: true });
        return;
      }
      copy.lastChild.textContent = 'Copied!';
      announce('Copied.');
      setTimeout(() => {
        copy.lastChild.textContent = label;
      }, SAID_FOR);
    },
    { look, picture: 'copy' },
  );
  return copy;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without https there is no clipboard to write to; the old way still works.
    const box = h('textarea', { class: 'unseen', 'aria-hidden': 'true', value: text });
    const before = document.activeElement;
    document.body.append(box);
    box.select();
    const done = document.execCommand('copy');
    box.remove();
    before?.focus();
    return done;
  }
}

/** Saves a blob under a name. */
export function download(blob, filename) {
  const url = URL.createObjectURL(blob);
  const anchor = h('a', { href: url, download: filename });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
