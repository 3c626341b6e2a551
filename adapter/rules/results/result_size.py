"""The size limit of a result. Pure.

Everything in it counts: texts, images, resources, structured content. Whole items are left out, so that neither a
character nor a JSON text is ever cut; a last item says that something is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from adapter.rules.results.shown_artifacts import Shown, ShownFile
from adapter.wire.envelope import list_at, value_at

_OWN = "adapter/"


@dataclass(frozen=True, slots=True)
class Attachments:
    """The parts of a result's content: ``data`` is the tool's own, ``links`` lead to its artifacts, ``files`` are
    such artifacts themselves. ``members`` are members of the result that the adapter has added.
    """

    data: Any
    links: tuple[Any, ...]
    files: tuple[Any, ...]
    members: Mapping[str, Any]


def attachments(result: Mapping[str, Any]) -> Attachments:
    """Separate the adapter's part of a result of ``tools/call`` from the tool's part."""
    meta = result.get("_meta")
    shown = list(_artifacts(meta)) if isinstance(meta, Mapping) else []
    members = {"resultType": result["resultType"]} if "resultType" in result else {}
    if isinstance(meta, Mapping) and (own := _own(meta)):
        members["_meta"] = own
    content = result.get("content")
    if not shown or not isinstance(content, list):
        return Attachments(content, (), (), members)
    added = [block for artifact in shown for block in artifact.blocks()]
    uris = {artifact.uri for artifact in shown}
    links = tuple(block for block in content if block in added)
    files = tuple(block for block in content if _embedded(block) in uris)
    data = [block for block in content if block not in added and _embedded(block) not in uris]
    return Attachments(data, links, files, members)


def _own(meta: Mapping[str, Any]) -> dict[str, Any]:
    entries = {key: value for key, value in meta.items() if key.startswith(_OWN)}
    if (artifact := _shown(meta.get("artifact"))) is not None:
        entries["artifact"] = artifact.meta
    if listed := [each.meta for each in map(_shown, list_at(meta, "artifacts")) if each]:
        entries["artifacts"] = listed
    if isinstance(meta.get("artifact_error"), str):
        entries["artifact_error"] = meta["artifact_error"]
    return entries


def _artifacts(meta: Mapping[str, Any]) -> Iterator[Shown]:
    several = meta.get("artifacts")
    for entry in several if isinstance(several, list) else [meta.get("artifact")]:
        if (shown := _shown(entry)) is not None:
            yield shown


def _shown(entry: Any) -> Shown | None:
    """Return the artifact that an entry describes; None for an entry that the adapter would never have written."""
    if not isinstance(entry, Mapping):
        return None
    shown = Shown(
        uri=entry.get("artifact_uri", ""),
        id=entry.get("artifact_id", ""),
        file=ShownFile(
            entry.get("filename", ""),
            entry.get("mime_type", ""),
            entry.get("size_bytes", 0),
            entry.get("sha256", ""),
        ),
        expires_at=entry.get("expires_at"),
        exposed=entry.get("expose_as_resource", False),
        download_url=entry.get("download_url"),
    )
    flat = not any(isinstance(value, Mapping | list) for value in entry.values())
    return shown if flat and shown.meta == entry else None


def _embedded(block: Any) -> str | None:
    """The URI of a resource that is embedded in the content."""
    uri = value_at(block, "resource", "uri")
    return uri if isinstance(uri, str) else None


LEAST = 1024
Weight = Callable[[Any], int]
"""A part of a result, to its bytes of JSON."""

_KIB, _MIB = 1024, 1024 * 1024
_REPLACED = ("content", "structuredContent", "isError")


def limited(result: Mapping[str, Any], limit: int) -> Mapping[str, Any]:
    """The result of ``tools/call`` in ``limit`` bytes of JSON, which are at least LEAST; the same object if it fits.

    Structured content comes before items, because clients that know its schema demand it. A result of which nothing
    but the sentence is left is an error.
    """
    most = max(limit, LEAST)
    weight = _weight_of(result)
    if weight(result) <= most:
        return result
    rest = {key: value for key, value in result.items() if key not in _REPLACED}
    if weight(_put(rest, [_sentence(most)], None, failed=True)) > most:
        rest = {key: result[key] for key in ("resultType",) if result.get(key) == "complete"}
    return _kept(result, rest, most, weight)


def sentence(limit: int) -> str:
    """The sentence in the last item of a result that was larger than so many bytes."""
    return (
        f"\n\n[SYSTEM INTERVENTION: Payload truncated at {_size(max(limit, LEAST))} to prevent memory crash. "
        "You MUST use pagination (limit/offset) or filters to retrieve smaller result sets.]"
    )


def _kept(result: Mapping[str, Any], rest: dict[str, Any], most: int, weight: Weight) -> dict[str, Any]:
    failed = result.get("isError") is True
    last = _sentence(most)
    structured = result.get("structuredContent")
    if structured is not None and weight(_put(rest, [last], structured, failed=True)) > most:
        structured = None
    room = most - weight(_put(rest, [last], structured, failed=failed))
    content: list[Any] = []
    items = result.get("content")
    for item in items if isinstance(items, list) else ():
        size = weight(item) + len(", ")
        if size <= room:
            room -= size
            content.append(item)
    nothing = not content and structured is None
    return _put(rest, [*content, last], structured, failed=failed or nothing)


def _weight_of(whole: Any) -> Weight:
    """Return the function that measures the parts of a whole.

    The size of a part is the number of its bytes in the JSON that ``envelope.dump`` makes of the whole.
    """
    try:
        orjson.dumps(whole)
    except orjson.JSONEncodeError:
        # One lone surrogate, and all of it is written in ASCII, which is the longer spelling of anything.
        return lambda part: len(json.dumps(part))
    return lambda part: len(orjson.dumps(part))


def _put(rest: Mapping[str, Any], content: list[Any], structured: Any, *, failed: bool) -> dict[str, Any]:
    members = {**rest, "content": content}
    if structured is not None:
        members["structuredContent"] = structured
    if failed:
        members["isError"] = True
    return members


def _sentence(most: int) -> dict[str, Any]:
    return {"type": "text", "text": sentence(most)}


def _size(count: int) -> str:
    return f"{count / _MIB:.1f}MB" if count >= _MIB else f"{count / _KIB:.0f}KB"
