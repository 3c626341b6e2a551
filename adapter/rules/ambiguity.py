"""Arguments that two readers of one message could take for different ones. Pure.

JSON lets a key stand in an object twice, and readers differ in which one counts; some also take a key in another
case or Unicode form, or without its underscores, for the one they know. Where a stage answers for the value of an
argument, the upstream must find no other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from adapter.rules.arguments import Step, steps
from adapter.wire import spans
from adapter.wire.scan import skip_space

_WAY = (Step("params", 0), Step("arguments", 0))

_LARGE = 32 * 1024
_ARGUMENTS_ARE_AN_OBJECT = re.compile(rb'"arguments"[ \t\n\r]*+:[ \t\n\r]*+\{')


def ambiguous(message: bytes, path: str) -> bool:
    """Whether a tool call may say more of an argument than ``arguments.values`` finds under its dotted path.

    It does when a member on the way stands there twice or in another spelling, or when there is a text or a list
    in the place of an object that the path leads through: a lenient reader finds a value in it.
    """
    way = (*_WAY, *steps(path))
    if _surely_plain(message, way):
        return False
    places = [skip_space(message, 0)]
    for step in way:
        inner: list[int] = []
        for place in places:
            if message.startswith((b'"', b"["), place):
                return True
            alike = _members_like(message, place, step.name)
            if len(alike) > 1 or any(member.key != step.name for member in alike):
                return True
            for member in alike:
                inner += _items(message, member.value_start, step.levels)
        places = inner
    return False


def _surely_plain(message: bytes, way: Sequence[Step]) -> bool:
    r"""True only if nothing is ambiguous; counting costs a tenth of the walk, and most calls are as simple as this.

    A key in another spelling needs capitals, underscores, a ``\u`` or what is not ASCII. What stands there once
    at most cannot be a key twice, and of one argument only ``arguments`` itself could be something else than an
    object: without that it is not looked into.
    """
    if len(way) != len(_WAY) + 1 or len(message) > _LARGE or not message.isascii() or b"\\u" in message:
        return False
    alike = message.lower().replace(b"_", b"").replace(b"-", b"")
    for step in way:
        exact = message.count(f'"{step.name}"'.encode())
        if exact > 1 or alike.count(f'"{_likeness(step.name)}"'.encode()) != exact:
            return False
    return _ARGUMENTS_ARE_AN_OBJECT.search(message) is not None


def _members_like(message: bytes, place: int, name: str) -> list[spans.Member]:
    if not message.startswith(b"{", place):
        return []
    sought = _likeness(name)
    return [member for member in spans.members(message, place) if _likeness(member.key) == sought]


def _items(message: bytes, place: int, levels: int) -> Iterator[int]:
    if levels == 0 or not message.startswith(b"[", place):
        yield place
        return
    for start, _ in spans.items(message, place):
        yield from _items(message, start, levels - 1)


def _likeness(key: str) -> str:
    """The same for two keys that some reader takes for one: JSON in Go ignores case, in Protobuf underscores."""
    if not key.isascii():
        key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", key).casefold())
    return key.lower().replace("_", "").replace("-", "")
