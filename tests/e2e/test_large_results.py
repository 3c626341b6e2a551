"""A host that calls itself Claude Code gets results that it shows whole, and reads the rest, on the official SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import Implementation

from tests.e2e.large_server import ROWS, lines
from tests.e2e.processes import Server, adapter
from tests.edge.raw import MODERN_VERSION

pytestmark = pytest.mark.e2e

CLAUDE_CODE = Implementation(name="claude-code", version="2.1.209")
SHOWN = 50_000
"""Characters of a result that Claude Code shows, as documented on 2026-10-05."""

STAGES: dict[str, Any] = {"stages": {"*": {"large_results": {"above": "128Ki"}}}}
ERAS = pytest.mark.parametrize("mode", ["legacy", MODERN_VERSION])


@asynccontextmanager
async def host(place: Path, mode: str, client: Implementation) -> AsyncIterator[Client]:
    """The SDK's client under that name, before an adapter with such tools."""
    async with (
        Server("tests.e2e.large_server", place) as upstream,
        adapter(place, upstream.url, entry=STAGES) as front,
        httpx2.AsyncClient(timeout=30) as http,
        Client(
            streamable_http_client(front.url, http_client=http), mode=mode, client_info=client, cache=None
        ) as one,
    ):
        yield one


def characters(result: Any) -> int:
    return sum(len(block.text) for block in result.content if block.type == "text")


@ERAS
async def test_log_is_read_to_its_end(tmp_path: Path, mode: str) -> None:
    """Its beginning is shown, and the tool of the adapter brings everything else in answers that are shown whole."""
    async with host(tmp_path, mode, CLAUDE_CODE) as one:
        await one.list_tools()
        result = await one.call_tool("log", {"count": 4000})
        assert characters(result) < SHOWN and result.content[0].type == "text"
        assert lines(4000).startswith(result.content[0].text) and result.content[-1].type == "resource_link"
        uri, found, more = result.content[-1].uri, "", {"first_line": 1}
        while more is not None:
            answer = await one.call_tool("upstream_read_artifact", {"uri": uri, **more})
            assert characters(answer) <= SHOWN and not answer.is_error
            head, data = (block.text for block in answer.content if block.type == "text")
            found, more = found + data, json.loads(head)["next"]
        assert found == lines(4000)


@ERAS
async def test_host_with_more_room_gets_it_whole(tmp_path: Path, mode: str) -> None:
    """Only results above the setting are shortened for hosts that nothing is known of."""
    async with host(tmp_path, mode, Implementation(name="inspector", version="1")) as one:
        result = await one.call_tool("log", {"count": 4000})
        assert [block.type for block in result.content] == ["text"] and characters(result) > SHOWN


@ERAS
async def test_table_stays_valid_for_the_sdk(tmp_path: Path, mode: str) -> None:
    """The client checks structured content by the schema that it was shown, and finds the way to all rows in it."""
    async with host(tmp_path, mode, CLAUDE_CODE) as one:
        await one.list_tools()
        result = await one.call_tool("table", {})
        value = result.structured_content
        assert value is not None and value["total"] == ROWS and 0 < len(value["rows"]) < ROWS
        arguments = {"uri": value["artifacts"][0]["uri"], "json_pointer": f"/rows/{ROWS - 1}"}
        answer = await one.call_tool("upstream_read_artifact", arguments)
        assert answer.content[1].type == "text"
        assert json.loads(answer.content[1].text) == {"id": ROWS - 1, "text": f"row {ROWS - 1}"}
