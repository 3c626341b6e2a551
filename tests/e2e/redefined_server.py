"""``python -m tests.e2e.redefined_server PORT FILE``: an SDK server that offers whatever tools the file defines now.

The file is a JSON list of definitions, read anew for each ``tools/list``; each page has two of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server

from tests.e2e.serving import serve

PAGE = 2

DEFINITIONS = Path(sys.argv[2])


async def list_tools(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    tools = json.loads(DEFINITIONS.read_text(encoding="utf-8"))
    start = int(params.cursor) if params is not None and params.cursor else 0
    more = str(start + PAGE) if start + PAGE < len(tools) else None
    return types.ListToolsResult.model_validate({"tools": tools[start : start + PAGE], "nextCursor": more})


async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=f"{params.name} ran")])


server: Server[Any] = Server("redefined", on_list_tools=list_tools, on_call_tool=call_tool)

if __name__ == "__main__":
    serve(server.streamable_http_app)
