"""Files between this machine and a server that a host reaches through ``mcp-adapter connect``.

The files of results, saved in a folder of this machine before the host reads the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from adapter.commands.client.result_files import save
from adapter.commands.connect.folders import Folders, NotAllowed, OpenedFile
from adapter.errors import AdapterError, BadJson
from adapter.rules.calls.rounds import STATE, asks_for_input, state_of
from adapter.rules.files.file_arguments import MarkedArgument, marked_arguments, texts_at
from adapter.rules.text.unicode import shown
from adapter.upstream.client_connection import tool_result
from adapter.upstream.client_refusals import ServerRefused
from adapter.upstream.transfers import TransferFailed, upload_opened
from adapter.wire.envelope import Envelope, dump, list_at, parse, value_at
from adapter.wire.spans import Edit, Insert, Replace, edit

MOST_TOOLS = 10_000
"""Tools that take files."""

MOST_FILES = 100
"""Files of one call."""

MOST_ROUNDS = 1000
"""Calls that a server goes on with once their person has answered it."""

_MOST_PAGES = 100
_LONGEST_REASON = 500
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PORTS = {"http": 80, "https": 443}

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Asks the server something beside a request of the host. The result; raises AdapterError, ServerRefused."""


Handles = dict[tuple[str, str], str]
"""The handle of each file that went up: by the tool that gave out the URL, and the text that named the file."""


def same_server(url: str, other: str) -> bool:
    """Tell whether two addresses have one origin. A server may name itself by any name of this machine."""
    origins = []
    for each in (url, other):
        try:
            parts = urlsplit(each)
            host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            return False
        origins.append((parts.scheme, "localhost" if host in _LOOPBACK else host, port))
    return origins[0] == origins[1] and origins[0][0] in _PORTS


class LocalUploads:
    """Uploads the files that a call names by their paths, and puts their handles in the place of these.

    Only arguments that take files by the server's definitions are looked at.
    """

    def __init__(self, url: str, folders: Folders) -> None:
        self._url, self._folders = url, folders
        self._tools: dict[str, list[MarkedArgument]] = {}
        self._rounds: dict[bytes, Handles] = {}
        self._listed = False

    def learn(self, data: bytes) -> bytes:
        """Take note of a page of definitions; the page, in which models are told of the folders."""
        page = value_at(parse(data), "result")
        tools = list_at(page, "tools")
        # A failure tells of no tools, and other pages may follow.
        self._listed = self._listed or (bool(tools) and not value_at(page, "nextCursor"))
        edits: dict[tuple[str | int, ...], Edit] = {}
        hint = f" A path of a file in {self._folders.shown} on this machine will do as well: it is uploaded."
        for number, tool in enumerate(tools):
            name = value_at(tool, "name")
            if not isinstance(name, str):
                continue
            self._tools.pop(name, None)
            marks = list(marked_arguments(tool.get("inputSchema")))
            if marks and len(self._tools) < MOST_TOOLS:
                self._tools[name] = marks
            for mark in marks:
                place = ("result", "tools", number, *mark.place)
                if place not in edits:
                    edits[place] = Insert(place, dump(mark.description + hint))
        try:
            return edit(data, list(edits.values())) if edits else data
        except ValueError:
            return data  # members that are there twice

    def keep(self, answer: bytes, handles: Handles) -> None:
        """Keep the handles of a call if its answer asks for input: the next round has the same arguments.

        Raises BadJson.
        """
        if STATE in answer and (state := asks_for_input(parse(answer))) is not None:
            self._rounds[_key(state)] = handles
            if len(self._rounds) > MOST_ROUNDS:
                del self._rounds[next(iter(self._rounds))]

    async def uploaded(self, call: Envelope, ask: Ask) -> tuple[Envelope, Handles]:
        """The call with handles, and these. Raises NotAllowed, and what ``ask`` raises."""
        if not self._listed:
            await self._list(ask)
        marks = self._tools.get(call.name or "")
        if not marks:
            return call, {}
        params = parse(call.body).get("params")
        arguments = value_at(params, "arguments")
        helpers = {mark.names: mark.helper for mark in marks}
        texts = {
            place: (helper, text)
            for names, helper in helpers.items()
            for place, text in texts_at(arguments, names)
        }
        handles = dict(self._rounds.get(_key(state_of(params) or ""), {}))
        with contextlib.ExitStack() as closing:
            files = {}
            for helper, text in dict.fromkeys(key for key in texts.values() if key not in handles):
                if (file := await asyncio.to_thread(self._folders.opened, text)) is not None:
                    files[helper, text] = file
                    closing.callback(file.content.close)
                if len(files) > MOST_FILES:
                    raise NotAllowed(
                        f"Nothing was uploaded: one call takes at most {MOST_FILES} local files."
                    )
            for helper in {helper for helper, _ in files}:
                own = {key: file for key, file in files.items() if key[0] == helper}
                handles |= zip(own, await self._sent(helper, [*own.values()], ask), strict=True)
        edits = [
            Replace(("params", "arguments", *place), dump(handles[key]))
            for place, key in texts.items()
            if key in handles
        ]
        return (call.with_body(edit(call.body, edits)) if edits else call), handles

    async def _sent(self, helper: str, files: list[OpenedFile], ask: Ask) -> list[str]:
        offer = await ask("tools/call", {"name": helper, "arguments": {}})
        url = value_at(offer, "structuredContent", "upload_url")
        if not isinstance(url, str):
            said = next((value_at(each, "text") for each in list_at(offer, "content")), None)
            why = said if isinstance(said, str) else f"{helper} gives no URL."
            raise NotAllowed(f"The server takes no upload now: {shown(why, _LONGEST_REASON)}")
        if not same_server(self._url, url):
            raise NotAllowed(
                "Nothing was uploaded: the server's upload URL is not at its own address, "
                f"{self._url}, but {shown(url, _LONGEST_REASON)}."
            )
        try:
            uploads = await upload_opened(url, files, {}, lambda _: None)
        except TransferFailed as failure:
            raise NotAllowed(f"The upload failed. {shown(str(failure), _LONGEST_REASON)}") from None
        handles = [value_at(each, "upload_handle") for each in uploads]
        if not all(isinstance(handle, str) for handle in handles):
            raise NotAllowed("The upload failed. The server gives no handle for a file.")
        return handles

    async def _list(self, ask: Ask) -> None:
        """Read the definitions, which the host knows from an earlier run."""
        params: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            page = await ask("tools/list", params)
            self.learn(dump({"result": page}))
            cursor = value_at(page, "nextCursor")
            if not isinstance(cursor, str):
                break
            params = {"cursor": cursor}
        self._listed = True


def _key(state: str) -> bytes:
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).digest()


METHODS = ("tools/call", "tasks/result")
"""Requests whose results have files."""

LARGEST = 1 << 30
"""Bytes of the files of one result."""

_PATIENCE = 600.0


class ResultFolder:
    """Saves files in ``folder``; only what the server at ``url`` itself gives out is fetched."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder.absolute()

    async def saved(self, data: bytes, tool: str, ask: Ask) -> bytes:
        """The response to a call, with a text that says where its files are. Anything else stays as it is."""
        result = await asyncio.to_thread(_result_in, data)
        if result is None:
            return data
        told: list[str] = []
        try:
            async with asyncio.timeout(_PATIENCE):
                resources = _Resources(ask)
                async for path in save(
                    result, tool, self._folder, resources, allows=self._allows, most=LARGEST
                ):
                    told.append(f"Saved on this machine: {path}")
        except TimeoutError:
            told.append(f"Not saved on this machine: it took longer than {_PATIENCE:g} s.")
        except (TransferFailed, ServerRefused, AdapterError, OSError) as failure:
            told.append(f"Not saved on this machine: {shown(str(failure), _LONGEST_REASON)}")
        if not told:
            return data
        block = dump({"type": "text", "text": "\n".join(told)})
        place = ("result", "content", len(result["content"]))
        try:
            return await asyncio.to_thread(edit, data, [Insert(place, block)])
        except ValueError:
            return data  # a member that is there twice

    def _allows(self, link: str) -> bool:
        # What else this machine reaches is not for the server to choose.
        return same_server(self._url, link)


class _Resources(NamedTuple):
    ask: Ask

    async def read(self, uri: str) -> list[dict[str, Any]]:
        answer = await self.ask("resources/read", {"uri": uri})
        return [
            {key: value for key, value in each.items() if isinstance(value, str)}
            for each in list_at(answer, "contents")
            if isinstance(each, dict)
        ]


def _result_in(data: bytes) -> dict[str, Any] | None:
    try:
        result = tool_result(value_at(parse(data), "result"))
    except (BadJson, ValueError):
        return None
    return result if result.get("content") or "_meta" in result else None
