// Inside a chat (MCP Apps, 2026-01-26): the link comes with the tool's result, and the handles go to the model.

let asked = 0;
const waiting = new Map();
const post = (message) => window.parent.postMessage({ jsonrpc: '2.0', ...message }, '*');
const tell = (method, params) => post({ method, params });

function ask(method, params) {
  asked += 1;
  post({ id: asked, method, params });
  return new Promise((resolve, reject) => waiting.set(asked, { resolve, reject }));
}

const look = (context) => {
  if (context?.theme === 'dark' || context?.theme === 'light') document.documentElement.style.colorScheme = context.theme;
};

/** What a result of the tool says of the link, or null. */
function offered({ structuredContent, content }) {
  try {
    const said = structuredContent ?? JSON.parse(content[0].text);
    return /^https?:$/.test(new URL(said.upload_url).protocol) ? said : null;
  } catch {
    return null;
  }
}

function offer(result) {
  const said = offered(result);
  if (!said) return fail('No upload link came with this message. Ask your assistant for one.');
  const link = said.open_in_browser ?? said.upload_url;
  const left = Math.max(0, (new Date(said.page_expires_at ?? said.expires_at) - Date.now()) / 1000);
  at('server').textContent = said.server_id;
  const most = { file: said.max_file_bytes, files: said.supports_multiple_files ? said.max_files ?? 1000 : 1 };
  begin({ ...most, total: null, digests: said.sha256_required, left }, link);
  form.hidden = at('intro').hidden = at('browser').hidden = false;
  at('browser').addEventListener('click', () => ask('ui/open-link', { url: link }).catch(() => say('Copy this: ' + link)));
  return say('');
}

handOver = (message) => {
  at('browser').hidden = true;
  const content = [{ type: 'text', text: message }];
  ask('ui/message', { role: 'user', content }).then(
    (result) => say(result?.isError ? 'Copy this for the chat.' : 'Your assistant was told.'),
    () => say('Copy this for the chat.'),
  );
};

const HEARD = {
  'ui/notifications/tool-result': offer,
  'ui/notifications/tool-cancelled': () => fail('The assistant cancelled this.'),
  'ui/notifications/host-context-changed': look,
};

window.addEventListener('message', ({ source, data }) => {
  if (source !== window.parent || data?.jsonrpc !== '2.0') return;
  if (data.method === undefined) {
    const { resolve, reject } = waiting.get(data.id) ?? {};
    waiting.delete(data.id);
    if (data.error) reject?.(data.error);
    else resolve?.(data.result);
  } else if (data.id === undefined) {
    HEARD[data.method]?.(data.params ?? {});
  } else if (data.method === 'ping' || data.method === 'ui/resource-teardown') {
    post({ id: data.id, result: {} });
  } else {
    post({ id: data.id, error: { code: -32601, message: 'Method not found' } });
  }
});

const appInfo = { name: 'mcp-file-adapter', version: '1' };
const appCapabilities = { availableDisplayModes: ['inline'] };
ask('ui/initialize', { appInfo, appCapabilities, protocolVersion: '2026-01-26' }).then(({ hostContext }) => {
  look(hostContext);
  tell('ui/notifications/initialized', {});
  new ResizeObserver(() => {
    const { width, height } = document.documentElement.getBoundingClientRect();
    tell('ui/notifications/size-changed', { width: Math.ceil(width), height: Math.ceil(height) });
  }).observe(document.documentElement);
});
