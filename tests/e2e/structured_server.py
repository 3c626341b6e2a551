"""``python -m tests.e2e.structured_server [PORT]``: tools that write a file and answer with structured content.

Each tool has the output schema of its name in ``SCHEMAS``, and answers with what stands beside it. The answer of
``broken`` is not what its schema says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server

from tests.e2e.serving import serve

CONTENT = b"written by a tool"

_N = {"n": {"type": "integer"}}
_CLOSED = {"type": "object", "properties": _N, "required": ["n"], "additionalProperties": False}

SCHEMAS: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "closed": (_CLOSED, {"n": 1}),
    "open": ({"type": "object", "properties": _N}, {"n": 1, "artifacts": "the tool's own"}),
    "mapping": ({"type": "object", "additionalProperties": {"type": "integer"}}, {"n": 1, "artifacts": 2}),
    "own": ({**_CLOSED, "properties": {**_N, "artifacts": {"type": "array", "maxItems": 0}}}, {"n": 1}),
    "combined": (
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "allOf": [{"$ref": "#/$defs/Counted"}],
            "$defs": {"Counted": {"properties": _N, "required": ["n"]}},
            "unevaluatedProperties": False,
        },
        {"n": 1},
    ),
    "either": (
        {
            "type": "object",
            "oneOf": [{"$ref": "#/definitions/Counted"}, {"required": ["why"], "maxProperties": 1}],
            "definitions": {"Counted": _CLOSED},
        },
        {"n": 1},
    ),
    "bare": (None, {"n": 1}),
    "broken": (_CLOSED, {"n": "one"}),
}


async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    tools = []
    for name, (schema, _answer) in SCHEMAS.items():
        tool = {"name": name, "inputSchema": {"type": "object"}}
        tools.append(tool if schema is None else {**tool, "outputSchema": schema})
    return types.ListToolsResult.model_validate({"tools": tools})


async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    Path((params.arguments or {})["filename"]).write_bytes(CONTENT)
    structured = SCHEMAS[params.name][1]
    text = types.TextContent(type="text", text=json.dumps(structured))
    return types.CallToolResult(content=[text], structured_content=structured)


server: Server[Any] = Server("structured", on_list_tools=list_tools, on_call_tool=call_tool)

if __name__ == "__main__":
    serve(server.streamable_http_app)
