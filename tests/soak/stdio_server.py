"""``python -S -m tests.soak.stdio_server``: a server over stdio that starts quickly, with the tool ``count``."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {"name": "count", "description": "Answers its token.", "inputSchema": {"type": "object"}}


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request."""
    match method:
        case "initialize":
            served = {"name": "soak", "version": "1"}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": served,
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return {"content": [{"type": "text", "text": params["arguments"]["token"]}]}
        case _:
            return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        answer = result(message["method"], message.get("params", {}))
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}) + "\n")
        sys.stdout.flush()
