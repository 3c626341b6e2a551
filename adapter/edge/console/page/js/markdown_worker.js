// Reads Markdown into tokens beside the page: a text made to be slow to read stops this thread and not the page's.

import { marked } from '../vendor/marked.esm.js';

self.onmessage = ({ data: { id, text } }) => {
  try {
    self.postMessage({ id, tokens: [...marked.lexer(text, { gfm: true })] });
  } catch {
    self.postMessage({ id, tokens: null });
  }
};
