// The part of a widget in MCP Apps (2026-01-26): it speaks with the host that shows it.

let asked = 0;
let host = {};
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

/** Speak with the host. `heard` has what to do at its notifications, by method; what it can do stands in `host`. */
function connect(heard) {
  window.addEventListener('message', ({ source, data }) => {
    if (source !== window.parent || data?.jsonrpc !== '2.0') return;
    if (data.method === undefined) {
      const { resolve, reject } = waiting.get(data.id) ?? {};
      waiting.delete(data.id);
      if (data.error) reject?.(data.error);
      else resolve?.(data.result);
    } else if (data.id === undefined) {
      ({ 'ui/notifications/host-context-changed': look, ...heard })[data.method]?.(data.params ?? {});
    } else if (data.method === 'ping' || data.method === 'ui/resource-teardown') {
      post({ id: data.id, result: {} });
    } else {
      post({ id: data.id, error: { code: -32601, message: 'Method not found' } });
    }
  });

  const appInfo = { name: 'mcp-file-adapter', version: '1' };
  const appCapabilities = { availableDisplayModes: ['inline'] };
  ask('ui/initialize', { appInfo, appCapabilities, protocolVersion: '2026-01-26' }).then((answer) => {
    const { hostContext, hostCapabilities } = answer;
    host = hostCapabilities ?? {};
    look(hostContext);
    tell('ui/notifications/initialized', {});
    new ResizeObserver(() => {
      const { width, height } = document.documentElement.getBoundingClientRect();
      tell('ui/notifications/size-changed', { width: Math.ceil(width), height: Math.ceil(height) });
    }).observe(document.documentElement);
  });
}
