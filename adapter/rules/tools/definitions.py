"""Definitions of tools and their fingerprints: what makes two definitions the same. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from adapter.rules.text.canonical_json import canonical
from adapter.wire.ambiguity import stands_twice
from adapter.wire.envelope import parse
from adapter.wire.names import TOOL
from adapter.wire.spans import Edit, Insert, edit


def announced(response: bytes, *, tools: bool, resources: bool, changing: bool) -> bytes:
    """The response with the capabilities that the adapter's own tools and resources need.

    ``changing``: the adapter tells when the list of resources changes. ``response`` itself where it already says
    all that, or is no result.
    """
    message = parse(response)
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(result, dict):
        return response
    found = result.get("capabilities", {})
    if not isinstance(found, dict):
        return response
    edits: list[Edit] = []
    if tools and not isinstance(found.get("tools"), dict):
        edits.append(Insert(("result", "capabilities", "tools"), b"{}"))
    if resources:
        edits += _resources(found.get("resources"), changing=changing)
    return edit(response, edits) if edits else response


def _resources(found: object, *, changing: bool) -> list[Edit]:
    path = ("result", "capabilities", "resources")
    if not isinstance(found, dict):
        return [Insert(path, b'{"listChanged":true}' if changing else b"{}")]
    if changing and found.get("listChanged") is not True:
        return [Insert((*path, "listChanged"), b"true")]
    return []


KNOWN = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""The members that a client's model acts on (MCP, "Tool"); all others, ``_meta`` among them, count apart."""


class Fingerprint(NamedTuple):
    """SHA-256 (hex) over the canonical form of the known members, and over that of all others."""

    known: str
    unknown: str


class PinnedTool(NamedTuple):
    """A definition as it was pinned: its fingerprint, and the canonical JSON of its known members."""

    known: str
    unknown: str
    definition: bytes


@dataclass(frozen=True, slots=True)
class Tool:
    """One entry of ``tools/list``: ``raw`` is its bytes as the client sees them.

    ``known`` and ``unknown`` are its fingerprint, ``form`` is the canonical JSON of its known members. ``doubtful``:
    another reader may find another definition in these bytes, as of a name or description that stands there twice.
    """

    # What they say is not kept: ten thousand tools are a million objects, which the collector looks through.
    name: str
    raw: bytes
    known: str
    unknown: str
    form: bytes
    doubtful: bool = False

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}: {self.known[:12]}>"

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.known, self.unknown)


def read_tool(raw: bytes, value: object = None) -> Tool | None:
    """The tool that these bytes define, or None: they are no object with a name. Raises BadJson.

    ``value`` is what they say, where that has been read.

    Where a member appears twice, readers differ in which counts: the last does here, and all the bytes go into
    the digest of what is unknown, so that the other one does not change unseen.
    """
    if value is None:
        value = parse(raw)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    form, unknown = known_form(value), _digest_of_others(value)
    doubtful = not TOOL.plain.issuperset(value) and TOOL.second_spelling(value) is not None
    if _has_duplicates(raw, value):
        unknown = _digest(unknown.encode("ascii") + raw)
        doubtful = doubtful or stands_twice(raw, TOOL)
    return Tool(value["name"], raw, _digest(form), unknown, form, doubtful)


def is_doubtful(raw: bytes, value: dict[str, Any]) -> bool:
    """Tell whether another reader of these bytes may find another definition than ``value``, which was read in them."""
    if not TOOL.plain.issuperset(value) and TOOL.second_spelling(value) is not None:
        return True
    return _has_duplicates(raw, value) and stands_twice(raw, TOOL)


def fingerprint(value: dict[str, Any]) -> Fingerprint:
    """Equal for two definitions exactly when a client's model is told the same, but for Unicode's NFKC."""
    return Fingerprint(_digest(known_form(value)), _digest_of_others(value))


def known_form(value: dict[str, Any]) -> bytes:
    """The canonical JSON of a definition's known members."""
    return canonical({key: value[key] for key in KNOWN if key in value})


def pinned(tool: Tool) -> PinnedTool:
    return PinnedTool(tool.known, tool.unknown, tool.form)


def _has_duplicates(raw: bytes, value: dict[str, Any]) -> bool:
    # Bytes that are the plain spelling of their own value hold nothing twice; most are.
    try:
        if orjson.dumps(value) == raw:
            return False
    except orjson.JSONEncodeError:
        pass
    found = False

    def pairs(members: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or len(dict(members)) < len(members)

    try:
        json.JSONDecoder(object_pairs_hook=pairs, parse_int=str).decode(raw.decode("utf-8"))
    except RecursionError:
        return True
    return found


def _digest_of_others(value: dict[str, Any]) -> str:
    others = {key: item for key, item in value.items() if key not in KNOWN}
    return _digest(canonical(others)) if others else _DIGEST_OF_NO_OTHERS


def _digest(data: bytes) -> str:
    # Not hash(): it is salted per process, and a pin outlives a restart.
    return hashlib.sha256(data).hexdigest()


_DIGEST_OF_NO_OTHERS = _digest(b"{}")
