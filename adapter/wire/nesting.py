"""Writing JSON that is nested as deep as the parser reads it, which is deeper than the serializers write. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from adapter.errors import BadJson

_BEFORE_A_VALUE = b",[{"
_OTHERS = bytes(set(range(256)) - set(_BEFORE_A_VALUE))
_SLICE = 1 << 18

_LARGE = 1 << 17

_RARE = 200
"""Times that a sign is looked for before it is counted: all of these take less than the count."""


def is_rare(text: bytes, sign: bytes, most: int) -> bool:
    """Tell whether a byte stands in a text fewer than ``most`` times: to find a rare one is ten times as fast as to
    count it.
    """
    at = -1
    for _ in range(most):
        at = text.find(sign, at + 1)
        if at < 0:
            return True
    return False


def values_at_most(text: bytes) -> int:
    """No JSON text has more values than this, names of members left out. What stands in strings counts as well.

    It costs about a third of a millisecond for a mebibyte, and a tenth of that for a file in base64.
    """
    if len(text) > _LARGE and all(is_rare(text, each, _RARE) for each in (b",", b"[", b"{")):
        return 3 * _RARE
    return len(text.translate(None, _OTHERS)) + 1


def has_more_values(text: bytes, most: int) -> bool:
    """Tell whether a JSON text has more than ``most`` values, an empty array or object counted as two."""
    return len(text) > most and values_at_most(text) > most and values_in(text) > most


def values_in(text: bytes) -> int:
    """How many values a JSON text has, an empty array or object counted as two."""
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # In slices, so that other threads come to their turn.
    found, inside = 1, 0
    for start in range(0, len(plain), _SLICE):
        pieces = plain[start : start + _SLICE].split(b'"')
        found += len(b"".join(pieces[inside::2]).translate(None, _OTHERS))
        inside ^= len(pieces) - 1 & 1
    return found


DEEP_VALUES = 50_000
"""Values that are written of JSON that no serializer writes: each takes ten times as long as others do."""


def dump_odd(value: Any, *, sort_keys: bool = False) -> bytes:
    """A value as JSON in ASCII, in which lone surrogates are legal, at any depth.

    Raises BadJson for more than DEEP_VALUES values that are nested too deep for the serializers.
    """
    try:
        return json.dumps(value, sort_keys=sort_keys).encode("ascii")
    except RecursionError:
        return _dump_deep(value, sort_keys).encode("ascii")


def _dump_deep(value: Any, sort_keys: bool) -> str:
    """The text that ``json.dumps`` would write, without recursion."""
    written: list[str] = []
    # What is still to be written, the next at the end: a text, or in a tuple a value.
    left: list[str | tuple[Any]] = [(value,)]
    count = 1
    while left:
        following = left.pop()
        if isinstance(following, str):
            written.append(following)
            continue
        (inner,) = following
        if not isinstance(inner, dict | list) or not inner:
            written.append(json.dumps(inner))
            continue
        count += len(inner)
        if count > DEEP_VALUES:
            raise BadJson(f"JSON that is nested this deeply may have at most {DEEP_VALUES} values.")
        left += reversed(list(_parts(inner, sort_keys)))
    return "".join(written)


def _parts(container: dict[str, Any] | list[Any], sort_keys: bool) -> Iterable[str | tuple[Any]]:
    """The texts and values that a container which is not empty is written as, in order."""
    before = "{" if isinstance(container, dict) else "["
    if isinstance(container, dict):
        for key, value in sorted(container.items(), key=itemgetter(0)) if sort_keys else container.items():
            yield f"{before}{json.dumps(key)}: "
            yield (value,)
            before = ", "
        yield "}"
    else:
        for value in container:
            yield before
            yield (value,)
            before = ", "
        yield "]"
