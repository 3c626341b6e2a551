"""``Mcp-Param-*`` headers of a call against the arguments that they mirror. Pure.

Source of the rules: MCP 2026-07-28, streamable HTTP, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from adapter.errors import HeaderMismatch
from adapter.rules.calls.param_header_names import Headers
from adapter.wire.eras import decode_mirror

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
            raise HeaderMismatch(f"The {name} header and the argument it mirrors must be given together.")
        if not _says(decode_mirror(said, header=name), value):
            raise HeaderMismatch(f"The {name} header is not the argument it mirrors.")


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
