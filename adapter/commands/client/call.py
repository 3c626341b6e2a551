"""``mcp-adapter call``: call a tool of any MCP server with arguments and files, and show or save what it gives."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adapter.commands.client.result_files import save
from adapter.commands.client.session import named, opened
from adapter.commands.client.terminal import Terminal
from adapter.commands.command_parser import CommandParser, failed
from adapter.commands.flags import add_call_flags
from adapter.commands.progress_bar import size
from adapter.commands.upload import HELPER, send
from adapter.rules.files.file_arguments import unmarked
from adapter.rules.tools.call_arguments import (
    ArgumentWord,
    NamedFile,
    WrongArgument,
    arguments_of,
    parse_word,
)
from adapter.upstream.client_connection import McpServer, ServerRefused
from adapter.upstream.transfers import TransferFailed


def run(options: argparse.Namespace) -> int:
    """Call the tool. Return the exit status: 1 if it fails, 2 if it does not take these arguments."""
    _read_flags(options)
    terminal = Terminal()
    try:
        words = [parse_word(text) for text in options.words]
        return asyncio.run(_called(options, words, terminal))
    except (ServerRefused, TransferFailed) as failure:
        return failed(str(failure))
    except WrongArgument as wrong:
        return failed(str(wrong), 2)


def _read_flags(options: argparse.Namespace) -> None:
    """Take the flags that stand behind the name of the tool from among its arguments."""
    usage = "%(prog)s [FLAG ...] URL TOOL [NAME=VALUE | FLAG ...]"
    behind = CommandParser(prog="mcp-adapter call", add_help=False, usage=usage)
    behind.add_argument("words", nargs="*")
    add_call_flags(behind)
    behind.parse_intermixed_args(vars(options).pop("words"), options)


async def _called(options: argparse.Namespace, words: Sequence[ArgumentWord], terminal: Terminal) -> int:
    async with opened(options, terminal, options.timeout) as server:
        tools = await server.tools()
        tool = named(tools, options.tool)
        arguments = arguments_of(options.tool, tool.get("inputSchema"), words)
        arguments = await _with_handles(arguments, server, tool, _upload_tool(tools, tool), terminal)
        result = await server.result(options.tool, arguments, options.timeout)
        _show(result, options, terminal)
        if options.save_to is not None:
            async for path in save(result, options.tool, options.save_to, server):
                terminal.say(f"Saved: {path}")
    return 1 if result.get("isError") else 0


# --- files that go up ---------------------------------------------------------------------------------------------


async def _with_handles(
    arguments: dict[str, Any],
    server: McpServer,
    tool: Mapping[str, Any],
    helper: str | None,
    terminal: Terminal,
) -> dict[str, Any]:
    """The arguments with a handle for each file, once all are uploaded. Raises WrongArgument, TransferFailed."""
    files = [
        (name, each.path)
        for name, value in arguments.items()
        for each in (value if isinstance(value, list) else [value])
        if isinstance(each, NamedFile)
    ]
    if not files:
        return arguments
    named, paths = (list(dict.fromkeys(each)) for each in zip(*files, strict=True))
    if helper is None:
        raise WrongArgument(
            "This server takes no files from here: no tool of it gives out upload URLs. At an adapter its settings "
            f"name the arguments that take files, as mcp-adapter wrap --consume {tool['name']}:{named[0]} does. A text "
            "that begins with @ is written name=@@text."
        )
    for name in unmarked(tool.get("inputSchema"), named):
        terminal.say(
            f"{tool['name']} does not say that {name} takes files, so it may get no more than the handle. At an "
            f"adapter mcp-adapter wrap --consume {tool['name']}:{name}, or its settings, let it take them."
        )
    offer = (await server.call(helper, {})).get("structuredContent", {})
    uploads = await send(str(offer.get("upload_url")), [Path(path) for path in paths])
    handles = dict(zip(paths, (each["upload_handle"] for each in uploads), strict=True))

    def replaced(value: Any) -> Any:
        if isinstance(value, list):
            return [replaced(each) for each in value]
        return handles[value.path] if isinstance(value, NamedFile) else value

    return {name: replaced(value) for name, value in arguments.items()}


def _upload_tool(tools: Sequence[dict[str, Any]], tool: dict[str, Any]) -> str | None:
    """The name of the tool that gives out upload URLs for another one: of several that which the other one names."""
    helpers = [each["name"] for each in tools if each["name"].endswith(HELPER)]
    text = json.dumps(tool)
    mentioned = [name for name in helpers if name in text]
    # Behind one address the name of a tool begins with the id of its server.
    siblings = [name for name in helpers if tool["name"].startswith(f"{name.removesuffix(HELPER)}_")]
    return max(mentioned or siblings or (helpers if len(helpers) == 1 else []), key=len, default=None)


# --- results ------------------------------------------------------------------------------------------------------


def _show(result: dict[str, Any], options: argparse.Namespace, terminal: Terminal) -> None:
    if options.json:
        terminal.show(json.dumps(result, indent=2, ensure_ascii=False))
        return
    show = terminal.say if result.get("isError") else terminal.show
    blocks = result.get("content", [])
    for block in blocks:
        resource = block.get("resource", {})
        if (text := block.get("text", resource.get("text"))) is not None:
            show(text)
        elif block["type"] == "resource_link":
            show(block["uri"])
        else:
            data = block.get("data", resource.get("blob", ""))
            kind = block.get("mimeType") or resource.get("mimeType") or block["type"]
            keep = "" if options.save_to else "; --save-to DIR saves it"
            terminal.say(f"[{kind}, {size(len(data) * 3 // 4)}{keep}]")
    structured = result.get("structuredContent")
    if structured is not None and not any(block["type"] == "text" for block in blocks):
        show(json.dumps(structured, indent=2, ensure_ascii=False))
