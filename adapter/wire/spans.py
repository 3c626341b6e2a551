"""Edits of JSON bytes that leave every byte they do not concern alone; where values stand is read in scan.

``MessagePieces`` is a long message that is compared and cut without being joined. Joining costs more than everything
else that is done with a message that is known already: the system has to find and to clear new memory for all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.wire.scan import (
    OPEN_ARRAY,
    OPEN_OBJECT,
    Member,
    Path,
    Span,
    byte,
    end_of_value,
    find,
    items,
    members,
    skip_space,
)

__all__ = [
    "Drop",
    "Edit",
    "Insert",
    "Member",
    "MessagePieces",
    "Path",
    "Replace",
    "Span",
    "edit",
    "find",
    "items",
    "members",
]


@dataclass(frozen=True, slots=True)
class Replace:
    """Put ``value`` (JSON) in place of the value at ``path``, which must exist."""

    path: Path
    value: bytes


@dataclass(frozen=True, slots=True)
class Insert:
    """Put ``value`` (JSON) at ``path``, whether or not something is there.

    Objects missing on the way are created; the length of an array as index appends to it.
    """

    path: Path
    value: bytes


@dataclass(frozen=True, slots=True)
class Drop:
    """Take the member or item at ``path`` away with its comma, every duplicate of it too; absent is fine."""

    path: Path


Edit = Replace | Insert | Drop


def edit(doc: bytes, edits: Sequence[Edit]) -> bytes:
    """``doc`` with all ``edits`` applied at once; bytes they do not concern stay as they are.

    Every path is one of the original document. Raises ValueError for a path that does not lead anywhere,
    and for two edits of which one touches what the other does.
    """
    root = _plan(edits)
    start = skip_space(doc, 0)
    patches: list[_Patch] = []
    todo = [_Place(root, start, -1)]
    while todo:
        place = todo.pop()
        change = place.node.change
        if isinstance(change, Drop):
            raise ValueError("the document itself cannot be dropped")
        if change is not None:
            end = place.end if place.end >= 0 else end_of_value(doc, place.start)
            patches.append(_Patch(place.start, end, change.value))
        elif place.node.children:
            todo += _edit_container(doc, place, patches)
    return _patched(doc, patches)


@dataclass(slots=True)
class _Node:
    """The edits by their paths: a node has either a change or children (or, at the root, neither)."""

    change: Edit | None = None
    children: dict[str | int, _Node] = field(default_factory=dict)


class _Place(NamedTuple):
    node: _Node
    start: int
    end: int


class _Patch(NamedTuple):
    start: int
    end: int
    value: bytes


def _plan(edits: Iterable[Edit]) -> _Node:
    root = _Node()
    for change in edits:
        node = root
        for step in change.path:
            if node.change is not None:
                raise ValueError(f"two edits overlap at {list(change.path)}")
            node = node.children.setdefault(step, _Node())
        if node.change is not None or node.children:
            raise ValueError(f"two edits overlap at {list(change.path)}")
        node.change = change
    return root


def _edit_container(doc: bytes, place: _Place, patches: list[_Patch]) -> list[_Place]:
    """Patch one container's drops and additions; returns the children whose values are to be edited."""
    names: list[str | int]
    if byte(doc, place.start) == OPEN_OBJECT:
        found = list(members(doc, place.start))
        names = [member.key for member in found]
        whole = [(member.key_start, member.value_end) for member in found]
        values = [member.value_start for member in found]
    elif byte(doc, place.start) == OPEN_ARRAY:
        whole = list(items(doc, place.start))
        names = list(range(len(whole)))
        values = [start for start, _ in whole]
    elif not _wanted(place.node):
        return []
    else:
        raise ValueError(f"an edit leads into the value at byte {place.start}, which holds no others")

    last = {name: position for position, name in enumerate(names)}
    inner = []
    for name, node in place.node.children.items():
        if name in last and not isinstance(node.change, Drop):
            inner.append(_Place(node, values[last[name]], whole[last[name]][1]))
    dropped = [_drops(place.node.children.get(name)) for name in names]
    patches += _removals(whole, dropped)

    added = {name: node for name, node in place.node.children.items() if name not in last}
    if texts := _additions(doc[place.start], added, len(names)):
        comma = b"" if all(dropped) else b","
        at = whole[-1][1] if whole else place.start + 1
        patches.append(_Patch(at, at, comma + b",".join(texts)))
    return inner


def _drops(node: _Node | None) -> bool:
    return node is not None and isinstance(node.change, Drop)


def _removals(whole: list[Span], dropped: list[bool]) -> Iterator[_Patch]:
    """Behind a survivor a dropped member takes the comma before it, ahead of all survivors the one after."""
    survivor = False
    for position, (start, end) in enumerate(whole):
        if not dropped[position]:
            survivor = True
        elif survivor:
            yield _Patch(whole[position - 1][1], end, b"")
        else:
            yield _Patch(start, whole[position + 1][0] if position + 1 < len(whole) else end, b"")


def _additions(opening: int, added: dict[str | int, _Node], length: int) -> list[bytes]:
    if opening == OPEN_OBJECT:
        return _new_members(added)
    texts: list[bytes] = []
    for index in sorted(index for index in added if isinstance(index, int) and _wanted(added[index])):
        if index != length + len(texts):
            raise ValueError(f"an array of {length} items has no place {index}")
        texts.append(_new_value(added[index]))
    if any(isinstance(name, str) and _wanted(node) for name, node in added.items()):
        raise ValueError("an edit names a member of an array")
    return texts


def _new_members(added: dict[str | int, _Node]) -> list[bytes]:
    texts = []
    for name, node in added.items():
        if not _wanted(node):
            continue
        if not isinstance(name, str):
            raise ValueError(f"an edit asks for item {name} of what is no array")
        # Escaped to ASCII, for a key may hold a lone surrogate, which UTF-8 cannot.
        texts.append(json.dumps(name).encode("ascii") + b":" + _new_value(node))
    return texts


def _wanted(node: _Node) -> bool:
    """Tell whether anything but drops is asked for here, so that what is missing matters."""
    if node.change is not None:
        return not isinstance(node.change, Drop)
    return any(map(_wanted, node.children.values()))


def _new_value(node: _Node) -> bytes:
    if isinstance(node.change, Insert):
        return node.change.value
    if node.change is not None:
        raise ValueError(f"nothing to replace at {list(node.change.path)}")
    return b"{" + b",".join(_new_members(node.children)) + b"}"


def _patched(doc: bytes, patches: list[_Patch]) -> bytes:
    pieces: list[bytes] = []
    at = 0
    for start, end, value in sorted(patches, key=lambda patch: patch[:2]):
        pieces += (doc[at:start], value)
        at = end
    pieces.append(doc[at:])
    return b"".join(pieces)


class MessagePieces:
    """The ``pieces`` of a message of ``size`` bytes, in order."""

    __slots__ = ("pieces", "size")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))

    def __repr__(self) -> str:
        return f"<MessagePieces: {self.size} bytes in {len(self.pieces)}>"

    def joined(self) -> bytes:
        """The whole message; a single piece is returned itself."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def beginning(self, most: int) -> bytes:
        """The first ``most`` bytes, or all there are."""
        return self.at(0, most)

    def ending(self, most: int) -> bytes:
        """The last ``most`` bytes, or all there are; ``most`` is above zero."""
        return self.at(self.size - most, self.size)

    def at(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``."""
        found = b""
        for piece in self.pieces:
            found += piece[max(0, start) : max(0, end)]
            start, end = start - len(piece), end - len(piece)
            if end <= 0:
                break
        return found

    def has_at(self, place: int, text: bytes, start: int, end: int) -> bool:
        """Tell whether the bytes of ``text`` from ``start`` to ``end`` stand at byte ``place`` of the message."""
        if len(self.pieces) == 1:
            return self.pieces[0].startswith(memoryview(text)[start:end], place)
        last, begin = place + end - start, 0
        if last > self.size:
            return False
        for piece in self.pieces:
            first, limit = max(place, begin), min(last, begin + len(piece))
            part = memoryview(piece)[first - begin : max(first, limit) - begin]
            if part and not text.startswith(part, start + first - place):
                return False
            begin += len(piece)
        return True
