// What all pages and widgets share. Texts of others are text, never markup.

const at = (id) => document.getElementById(id);
const size = (bytes) => {
  const units = ['bytes', 'KB', 'MB', 'GB', 'TB'];
  let unit = 0;
  let number = bytes;
  for (; number >= 1024 && unit < 4; unit += 1) number /= 1024;
  return `${unit ? Math.round(number * 10) / 10 : number} ${units[unit]}`;
};
const say = (text) => { at('status').textContent = text; };

function made(name, text, facts = {}) {
  const node = Object.assign(document.createElement(name), facts);
  node.textContent = text;
  return node;
}
