// How numbers, times and sizes are said.

/** `1536` → `1.5 KiB`. */
export function bytes(size) {
  if (size === null || size === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let left = size;
  while (left >= 1024 && unit < units.length - 1) [left, unit] = [left / 1024, unit + 1];
  return `${unit && left < 10 ? left.toFixed(1) : Math.round(left)} ${units[unit]}`;
}

/** Milliseconds, in the unit that a person would say. */
export function duration(ms) {
  if (ms === null || ms === undefined) return '–';
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** Whether a text has all words that are looked for. */
export function matcher(wanted) {
  const words = wanted.toLowerCase().split(/\s+/);
  return (text) => words.every((word) => text.toLowerCase().includes(word));
}

/** Unix seconds, or a text in ISO 8601, as Unix seconds; null when it is neither. */
export function instant(value) {
  if (typeof value === 'number') return value;
  const read = Date.parse(value ?? '');
  return Number.isNaN(read) ? null : read / 1000;
}

/** `3 min ago`, `in 2 h`. */
export function relative(value, now = Date.now() / 1000) {
  const at = instant(value);
  if (at === null) return '–';
  const away = at - now;
  const size = Math.abs(away);
  const said =
    size < 1
      ? 'now'
      : size < 60
        ? `${Math.round(size)} s`
        : size < 3600
          ? `${Math.round(size / 60)} min`
          : size < 172_800
            ? `${Math.round(size / 3600)} h`
            : `${Math.round(size / 86_400)} d`;
  if (said === 'now') return said;
  return away > 0 ? `in ${said}` : `${said} ago`;
}

/** `14:03:59`, in the reader's time zone. */
export function clock(value) {
  const at = instant(value);
  return at === null ? '–' : new Date(at * 1000).toLocaleTimeString(undefined, { hour12: false });
}

/** The whole date, for titles. */
export function moment(value) {
  const at = instant(value);
  return at === null ? '' : new Date(at * 1000).toLocaleString();
}

/** `1 tool`, `5,000 tools`. */
export const count = (number, one, many = `${one}s`) => `${number.toLocaleString('en')} ${number === 1 ? one : many}`;

// Characters that turn text round or cannot be seen: in a name they are a way to look like another.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A stranger's name with what could hide in it spelled out, cut at `most` characters. */
export function plain(text, most = 200) {
  const spelled = String(text ?? '')
    .slice(0, most)
    .replace(HIDDEN, (hidden) => `\\u${hidden.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return String(text ?? '').length > most ? `${spelled}…` : spelled;
}
