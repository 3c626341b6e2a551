// Texts of presenters hold passages in tags of their own: interface blocks, and notes for the model. Found by plain
// searches, each of which goes on where the last one ended, so a hostile text costs its length once.

const TAGS = ['ui_passthrough', 'llm_directives', 'domain_rules', 'action_suggestions'];
const LONGEST_HEAD = 2000;
const MOST = 100;

/** The parts of a text in their order: `{tag: null, text}`, or `{tag, type, title, text}` for a passage. */
export function passages(text) {
  const parts = [];
  let from = 0;
  const unclosed = new Set();
  let at = text.indexOf('<');
  while (at >= 0 && parts.length < MOST) {
    const found = passageAt(text, at, unclosed);
    if (found) {
      plain(parts, text.slice(from, at));
      parts.push(found.part);
      from = found.end;
    }
    at = text.indexOf('<', found ? found.end : at + 1);
  }
  plain(parts, text.slice(from));
  return parts.length ? parts : [{ tag: null, text }];
}

function plain(parts, text) {
  if (text.trim()) parts.push({ tag: null, text: text.trim() });
}

function passageAt(text, at, unclosed) {
  const tag = TAGS.find((one) => text.startsWith(`<${one}`, at));
  if (!tag || unclosed.has(tag)) return null;
  const head = at + text.slice(at, at + LONGEST_HEAD).indexOf('>');
  if (head < at) return null;
  const close = `</${tag}>`;
  const end = text.indexOf(close, head);
  if (end < 0) {
    // Nor is there one behind any later beginning: no other search for it walks to the end.
    unclosed.add(tag);
    return null;
  }
  const said = text.slice(at + tag.length + 1, head);
  return {
    part: {
      tag,
      type: attribute(said, 'type'),
      title: attribute(said, 'title'),
      text: text.slice(head + 1, end).trim(),
    },
    end: end + close.length,
  };
}

const NAMED = { amp: '&', lt: '<', gt: '>', quot: '"', '#x27': "'", '#39': "'" };

function attribute(head, name) {
  const found = new RegExp(`\\s${name}="([^"]*)"`).exec(head);
  return found ? found[1].replace(/&(amp|lt|gt|quot|#x27|#39);/g, (_, entity) => NAMED[entity]) : null;
}
