"""``mcp-adapter tools``: what a server offers, in lines as ``mcp-adapter call`` takes them."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from adapter.commands.client.session import named, opened
from adapter.commands.client.terminal import Terminal
from adapter.commands.command_parser import failed
from adapter.commands.upload import HELPER
from adapter.rules.text.unicode import hanging, shown
from adapter.rules.tools.call_arguments import WrongArgument, usage
from adapter.upstream.client_connection import ServerRefused

_OF_FILES = ("handle from ", HELPER)
"""What the adapter says of an argument that takes files."""

_MOST_TOOLS = 1000
_MOST_ARGUMENTS = 30
_LONGEST_NAME = 128
_LONGEST_LINE = 200
_LONGEST_TEXT = 20_000


def run(options: argparse.Namespace) -> int:
    """Print the tools, or all about one. Return the exit status: 2 where there is no such tool."""
    terminal = Terminal()
    try:
        tools = asyncio.run(_tools(options, terminal))
        found = None if options.tool is None else named(tools, options.tool)
    except ServerRefused as refused:
        return failed(shown(str(refused), _LONGEST_TEXT))
    except WrongArgument as wrong:
        return failed(shown(str(wrong), _LONGEST_TEXT), 2)
    if options.json:
        terminal.show(json.dumps(tools if found is None else found, indent=2, ensure_ascii=False))
    elif found is None:
        print("\n".join(_lines(tools)))
    else:
        print("\n".join(_all_about(found)))
    return 0


async def _tools(options: argparse.Namespace, terminal: Terminal) -> list[dict[str, Any]]:
    async with opened(options, terminal) as server:
        return await server.tools()


def _lines(tools: list[dict[str, Any]]) -> Iterator[str]:
    for tool in tools[:_MOST_TOOLS]:
        yield " ".join((shown(tool["name"], _LONGEST_NAME), *_usage(tool)))
        about = tool.get("description") or tool.get("title") or ""
        first = next((line for line in about[:_LONGEST_TEXT].splitlines() if line.strip()), "")
        if first:
            yield f"    {shown(first.strip(), _LONGEST_LINE)}"
    if len(tools) > _MOST_TOOLS:
        yield f"… and {len(tools) - _MOST_TOOLS} more: --json lists all."


def _all_about(tool: dict[str, Any]) -> Iterator[str]:
    yield shown(tool["name"], _LONGEST_NAME)
    yield hanging(f"    {tool.get('description', '')[:_LONGEST_TEXT]}")
    schema = tool.get("inputSchema", {})
    properties = schema.get("properties") or {}
    for words, each in zip(_usage(tool), islice(properties.values(), _MOST_ARGUMENTS), strict=False):
        about = each.get("description", "") if isinstance(each, dict) else ""
        yield f"  {words}  {shown(str(about), _LONGEST_LINE)}".rstrip()


def _usage(tool: dict[str, Any]) -> Iterator[str]:
    for number, words in enumerate(usage(tool.get("inputSchema"), _OF_FILES)):
        if number == _MOST_ARGUMENTS:
            yield "…"
            return
        yield shown(words, _LONGEST_NAME)
