"""``Mcp-Param-*`` headers of a call, against the arguments they mirror.

Source of the rules: MCP 2026-07-28, streamable HTTP, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from adapter.errors import HeaderMismatch
from adapter.hosted.port import Fields
from adapter.wire.eras import decode_mirror

ANNOTATION = "x-mcp-header"


def check_parameters(schema: object, arguments: Mapping[str, Any], headers: Fields) -> None:
    """Raises HeaderMismatch unless each argument that the schema mirrors and its header say the same, or nothing."""
    for path, name in _annotated(schema):
        said, value = headers.get(name.lower()), _at(arguments, path)
        if said is None and value is None:
            continue
        if said is None or value is None:
            raise HeaderMismatch(f"The {name} header and the argument it mirrors must be given together.")
        if not _says(decode_mirror(said, header=name), value):
            raise HeaderMismatch(f"The {name} header is not the argument it mirrors.")


def _says(text: str, value: object) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            return float(text) == value
        except ValueError:
            return False
    return text == value


def _at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _annotated(schema: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The header of each property that has one. Only those reached through ``properties`` alone may be mirrored."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for key, inner in properties.items() if isinstance(properties, dict) else ():
        if isinstance(inner, dict) and isinstance(inner.get(ANNOTATION), str):
            yield (*path, key), f"Mcp-Param-{inner[ANNOTATION]}"
        yield from _annotated(inner, (*path, key))
