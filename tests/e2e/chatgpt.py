"""ChatGPT as a host of MCP servers, as far as it moves files: written from what is published of it.

Sources: OpenAI, "Plugins reference", "Define file inputs", and "Apps SDK, Build your MCP server", "File handling"
(developers.openai.com/plugins/reference and /apps-sdk/build/mcp-server, as of 2026-10); openai/codex,
``codex_apps/file_params.rs`` (2026-07), for what the host makes of schemas; servers' logs for its names and sessions.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import quote

import aiohttp
import jsonschema
from mcp import Client
from mcp.types import CallToolResult, Implementation, Tool

from tests.edge.attaching import FileHost

OPTIONAL = ("mime_type", "file_name")


class ChatGPT:
    """A conversation with files by their names, and a model that passes a name where it means the file.

    A session is opened for each request, and a URL is good for one call. ``store`` is where the host's files are.
    """

    def __init__(self, url: str, store: FileHost, mode: Literal["legacy", "auto"]) -> None:
        self._url = url
        self._store = store
        self._mode: Literal["legacy", "auto"] = mode
        self.files: dict[str, bytes] = {}

    def _client(self) -> Client:
        info = Implementation(name="openai-mcp (ChatGPT)", version="1.0.0")
        return Client(self._url, client_info=info, mode=self._mode)

    async def tools(self) -> dict[str, Tool]:
        """The tools of the server, as a refresh of the app reads them."""
        async with self._client() as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    async def call(self, tool: Tool, **arguments: Any) -> CallToolResult:
        """Call a tool with names of files where it takes files. Raises jsonschema.ValidationError as the host would."""
        urls: list[str] = []
        for name in (tool.meta or {}).get("openai/fileParams", ()):
            if name in arguments:
                schema = tool.input_schema["properties"][name]
                arguments[name] = self._filled(arguments[name], schema, urls)
        jsonschema.validate(arguments, tool.input_schema)
        async with self._client() as client:
            result = await client.call_tool(tool.name, arguments)
        for path in urls:
            del self._store.answers[path]
        if tool.output_schema is not None and not result.is_error:
            jsonschema.validate(result.structured_content, tool.output_schema)
        return result

    def _filled(self, value: Any, schema: dict[str, Any], urls: list[str]) -> Any:
        """The model sees a list where the top of the schema is one, else a text."""
        if schema.get("type") == "array" or "items" in schema:
            return [self._provided(each, schema["items"], urls) for each in value]
        return self._provided(value, schema, urls)

    def _provided(self, name: Any, schema: dict[str, Any], urls: list[str]) -> Any:
        if not isinstance(name, str) or name not in self.files:
            return name
        path = f"/{secrets.token_urlsafe(16)}/{quote(name)}"
        url = self._store.put(path, self.files[name], "Content-Type: application/octet-stream")
        urls.append(path)
        provided = {"download_url": f"{url}?sig=a%2Bb%3D", "file_id": f"file_{secrets.token_hex(8)}"}
        known = {"mime_type": "application/octet-stream", "file_name": name}
        return provided | {key: known[key] for key in OPTIONAL if key in _members(schema)}

    async def receive(self, result: CallToolResult) -> list[str]:
        """Take the files that a result refers to into the conversation; return their names."""
        names = []
        async with aiohttp.ClientSession() as http:
            for reference in _references(result.structured_content):
                async with http.get(reference["download_url"]) as response:
                    assert response.status == 200
                    self.files[reference["file_name"]] = await response.read()
                names.append(reference["file_name"])
        return names


def _members(schema: dict[str, Any]) -> set[str]:
    """The members that an object in this schema may have, in its alternatives too."""
    found = set(schema.get("properties", ()))
    for branch in schema.get("anyOf", ()):
        found |= _members(branch)
    return found


def _references(value: Any) -> Iterator[dict[str, str]]:
    if isinstance(value, dict) and {"download_url", "file_id"} <= value.keys():
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _references(inner)
