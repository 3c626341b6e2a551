"""``python -m tests.e2e.member_server PORT PLACE``: an SDK server with the tools that a file names now.

``PLACE/tools.json`` is a list of names, read anew for each request; others are unknown. A call adds its tool and its
``text`` to ``PLACE/ran.txt`` before it does anything, and answers after ``seconds``. The tool ``rename`` has the file
name ``names`` from now on, and says so; ``ask`` answers with what the client says to the question in ``text``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server

from tests.e2e.serving import serve

PLACE = Path(sys.argv[2])
QUESTION = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS, RAN = PLACE / "tools.json", PLACE / "ran.txt"


async def list_tools(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    names = json.loads(TOOLS.read_text())
    found = [types.Tool(name=name, input_schema={"type": "object"}) for name in names]
    return types.ListToolsResult(tools=found)


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    given = params.arguments or {}
    if params.name not in json.loads(TOOLS.read_text()):
        return said(f"Unknown tool: {params.name}", is_error=True)
    with RAN.open("a") as ran:
        ran.write(f"{params.name} {given.get('text', '')}\n")
    await asyncio.sleep(given.get("seconds", 0))
    if params.name == "rename":
        TOOLS.write_text(json.dumps(given["names"]))
        await context.session.send_tool_list_changed()
    if params.name == "ask":
        answer = await context.session.elicit_form(given["text"], QUESTION, context.request_id)
        return said(answer.content["text"])
    return said(f"{PLACE.name} ran {params.name} {given.get('text', '')}")


def said(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)


server: Server[Any] = Server(PLACE.name, on_list_tools=list_tools, on_call_tool=call_tool)

if __name__ == "__main__":
    serve(server.streamable_http_app)
