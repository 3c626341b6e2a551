"""``python -m tests.e2e.earlier_server PORT FILE``: a server whose tools the file defines, for kept states.

It needs no library, so that what it offers never changes. A call reads the file that ``path`` names, writes one that
``filename`` names, or says that it ran.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class McpHandler(BaseHTTPRequestHandler):
    """Answers MCP requests of 2025-11-25, in any session."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            self._send(202, b"")
            return
        answer: Callable[[dict[str, Any]], dict[str, Any]] = _RESULTS[message["method"]]
        result = answer(message.get("params") or {})
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self._send(200, json.dumps(body).encode())

    def do_GET(self) -> None:
        self._send(405, b"")

    def do_DELETE(self) -> None:
        self._send(200, b"")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of single requests."""

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Mcp-Session-Id", "the-one-session")
        self.end_headers()
        self.wfile.write(body)


def _initialize(params: dict[str, Any]) -> dict[str, Any]:
    capabilities: dict[str, Any] = {"tools": {}, "resources": {}}
    server = {"name": "earlier", "version": "1"}
    return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": server}


def _tools(params: dict[str, Any]) -> dict[str, Any]:
    return {"tools": json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))}


def _call(params: dict[str, Any]) -> dict[str, Any]:
    arguments = params.get("arguments") or {}
    text = "ran"
    if "path" in arguments:
        text = Path(arguments["path"]).read_text(encoding="utf-8")
    if "filename" in arguments:
        Path(arguments["filename"]).write_text("drawn", encoding="utf-8")
    return {"content": [{"type": "text", "text": text}]}


def _nothing(params: dict[str, Any]) -> dict[str, Any]:
    return {"resources": [], "resourceTemplates": []}


_RESULTS = {
    "initialize": _initialize,
    "ping": _nothing,
    "tools/list": _tools,
    "tools/call": _call,
    "resources/list": _nothing,
    "resources/templates/list": _nothing,
}

if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), McpHandler)
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    server.serve_forever()
