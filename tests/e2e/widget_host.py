"""A host of MCP Apps: a page with a chat, in which a widget runs in a sandbox under the policy that it declares.

Source: github.com/modelcontextprotocol/ext-apps, specification/2026-01-26/apps.mdx, "Communication Protocol" and
"Content Security Policy Enforcement". Unlike a real one it has no proxy between the two.
"""

from __future__ import annotations

import json
from typing import Any

_PAGE = """<!doctype html><title>Chat</title><iframe sandbox="allow-scripts" width=400></iframe>
<script type="application/json" id=given>GIVEN</script>
<script>
const { html, result, refuses } = JSON.parse(document.getElementById('given').textContent);
const frame = document.querySelector('iframe');
window.heard = [];
const reply = (message) => frame.contentWindow.postMessage({ jsonrpc: '2.0', ...message }, '*');
addEventListener('message', ({ source, data }) => {
  if (source !== frame.contentWindow) return;
  heard.push([data.method, data.params]);
  if (data.method === 'ui/initialize') {
    const protocolVersion = data.params.protocolVersion;
    const hostInfo = { name: 'host', version: '1' };
    const [hostCapabilities, hostContext] = [{ openLinks: {} }, { theme: 'dark' }];
    reply({ id: data.id, result: { protocolVersion, hostCapabilities, hostInfo, hostContext } });
  } else if (data.method === 'ui/notifications/initialized') {
    reply({ method: 'ui/notifications/tool-input', params: { arguments: {} } });
    reply({ method: 'ui/notifications/tool-result', params: result });
  } else if (data.id !== undefined) {
    reply(refuses ? { id: data.id, error: { code: -32000, message: 'denied' } } : { id: data.id, result: {} });
  }
});
frame.srcdoc = html;
</script>"""


def chat_page(contents: dict[str, Any], result: dict[str, Any], *, refuses: bool = False) -> str:
    """The page of a host that has read the widget, and whose tool has answered with ``result``.

    ``refuses``: it lets the widget send nothing into the chat.
    """
    connects = " ".join(contents["_meta"]["ui"]["csp"]["connectDomains"])
    policy = (
        "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        f"img-src 'self' data:; connect-src 'self' {connects}; base-uri 'self'; object-src 'none'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    html = contents["text"].replace("<head>", f"<head>{meta}", 1)
    given = json.dumps({"html": html, "result": result, "refuses": refuses}).replace("<", "\\u003c")
    return _PAGE.replace("GIVEN", given)
