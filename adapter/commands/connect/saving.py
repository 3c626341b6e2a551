"""The files of results, saved in a folder of this machine before the host reads the result."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from adapter.commands.client.result_files import save
from adapter.commands.connect.files import Ask, same_server
from adapter.errors import AdapterError, BadJson
from adapter.rules.text.unicode import shown
from adapter.upstream.client_connection import tool_result
from adapter.upstream.client_refusals import ServerRefused
from adapter.upstream.transfers import TransferFailed
from adapter.wire.envelope import dump, list_at, parse, value_at
from adapter.wire.spans import Insert, edit

METHODS = ("tools/call", "tasks/result")
"""Requests whose results have files."""

LARGEST = 1 << 30
"""Bytes of the files of one result."""

_PATIENCE = 600.0
_LONGEST_REASON = 500


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
