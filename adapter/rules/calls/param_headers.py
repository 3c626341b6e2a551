"""``Mcp-Param-*`` headers of a call against the arguments that they mirror. Pure.

Source of the rules: MCP 2026-07-28, streamable HTTP, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from adapter.errors import HeaderMismatch
from adapter.wire.eras import decode_mirror

ANNOTATION = "x-mcp-header"

DEEPEST = 32
"""Objects within each other of which an argument may be mirrored; a path is written out for each."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""What the name of a header may be (RFC 9110 §5.1); an upstream's schema is data like any other."""

Headers = Mapping[tuple[str, ...], str]
"""The header of each argument that has one, by its path."""

NO_HEADERS: Headers = {}


def annotated(schema: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """The header of each property that has one. Only those reached through ``properties`` alone may be mirrored."""
    todo: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while todo:
        path, here = todo.pop()
        properties = here.get("properties") if isinstance(here, dict) else None
        if not isinstance(properties, dict) or len(path) == DEEPEST:
            continue
        for key, inner in properties.items():
            if not isinstance(inner, dict):
                continue
            todo.append(((*path, key), inner))
            name = inner.get(ANNOTATION)
            if isinstance(name, str) and _TOKEN.fullmatch(name):
                yield (*path, key), f"Mcp-Param-{name}"


def headers_of(definition: bytes, value: Mapping[str, Any]) -> Headers:
    """The headers of a tool's arguments. ``value`` is what ``definition`` says."""
    # Few tools have any, and a backslash may hide the word.
    if b"x-mcp-header" not in definition and b"\\" not in definition:
        return NO_HEADERS
    return dict(annotated(value.get("inputSchema")))


_NUMBER = re.compile(r"-?[0-9]{1,40}((?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?)")


def check_parameters(mirrors: Headers, arguments: object, headers: Mapping[str, str]) -> None:
    """Raise HeaderMismatch unless each mirrored argument and its header say the same, or nothing.

    ``headers`` go by their names in lower case. What no header can say, such as a list, is left to the upstream.
    """
    for path, name in mirrors.items():
        said, value = headers.get(name.lower()), value_at(arguments, path)
        if isinstance(value, list | dict) or (said is None and value is None):
            continue
        if said is None or value is None:
            raise HeaderMismatch(f"The {name} header and its argument must be sent together.")
        if not _says(decode_mirror(said, header=name), value):
            raise HeaderMismatch(f"The {name} header and its argument have different values.")


def value_at(value: object, path: Sequence[str]) -> object:
    """The argument that the path leads to, None where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _says(text: str, value: object) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        # Not all integers are doubles, so those are compared as what they are.
        number = _NUMBER.fullmatch(text)
        return number is not None and (float(text) if number[1] else int(text)) == value
    return text == value
