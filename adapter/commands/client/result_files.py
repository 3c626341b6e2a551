"""The files of a tool's result, saved in a folder under safe names."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from adapter.commands.download import LocalFile, Resources, by_http, by_server, last_part
from adapter.rules.files.media_types import named_after_type
from adapter.upstream.transfers import TransferFailed

_MOST_FILES = 1000


class ResultFile(NamedTuple):
    """A file in a result: where it is read or downloaded, or its content."""

    name: str
    uri: str | None = None
    link: str | None = None
    content: bytes | None = None


async def save(
    result: dict[str, Any],
    tool: str,
    folder: Path,
    server: Resources,
    *,
    allows: Callable[[str], bool] = bool,
    most: int | None = None,
) -> AsyncIterator[Path]:
    """Save each file of a result, none over another one; all together have at most ``most`` bytes.

    Of links only those are followed that ``allows`` accepts. Raises TransferFailed, ServerRefused.
    """
    _make(folder)
    for each in islice(files_of(result, tool), _MOST_FILES):
        with LocalFile(each.name, str(folder), renames=True, most=most) as file:
            try:
                await _fetched(each, file, server, allows)
                path = file.keep()
            except OSError as failure:
                raise TransferFailed(f"A file cannot be written to {folder}: {failure.strerror}.") from None
        if path is not None:
            most = None if most is None else most - path.stat().st_size
            yield path


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise TransferFailed(f"{folder} is no folder: {failure.strerror}.") from None


async def _fetched(
    each: ResultFile, file: LocalFile, server: Resources, allows: Callable[[str], bool]
) -> None:
    if each.content is not None:
        file.open(None, len(each.content)).write(each.content)
    elif each.link is not None and allows(each.link):
        await by_http(each.link, file)
    elif each.uri is not None and each.uri != each.link:
        await by_server(each.uri, server, file, allows)


def files_of(result: Mapping[str, Any], tool: str) -> Iterator[ResultFile]:
    """The artifacts of the adapter, links to resources, and content that is no text. Raises TransferFailed."""
    meta = result.get("_meta", {})
    artifacts = meta.get("artifacts", [meta["artifact"]] if "artifact" in meta else [])
    known = set()
    for each in artifacts if isinstance(artifacts, list) else ():
        if isinstance(each, dict) and isinstance(uri := each.get("artifact_uri"), str):
            known.add(uri)
            link = each.get("download_url")
            yield ResultFile(str(each.get("filename", "")), uri, link if isinstance(link, str) else None)
    for block in result.get("content", ()):
        resource = block.get("resource", {})
        uri = block.get("uri", resource.get("uri"))
        if uri in known:
            continue
        if block["type"] == "resource_link":
            known.add(uri)
            is_link = uri.lower().startswith(("http://", "https://"))
            yield ResultFile(str(block.get("name") or last_part(uri)), uri, uri if is_link else None)
        elif (data := block.get("data", resource.get("blob"))) is not None:
            kind = block.get("mimeType") or resource.get("mimeType") or ""
            name = last_part(uri) if uri else named_after_type(tool, kind)
            yield ResultFile(name, content=_decoded(data))


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data)
    except ValueError:
        raise TransferFailed("A file of the result is not what it says: its base64 is broken.") from None
