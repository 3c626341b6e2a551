"""The lists of a merged mount: the entries of all servers, in which only names and URIs are changed. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from adapter.rules.access.access_rules import SHAPES, ListShape, OfferKind, read_entries
from adapter.rules.mounts.names import NameTable
from adapter.rules.mounts.uris import UriTable
from adapter.rules.tools.lists import MOST_ITEMS
from adapter.wire.envelope import dump, parse, value_at
from adapter.wire.outline import Reader
from adapter.wire.piecewise import Piecewise, one_piece
from adapter.wire.spans import Edit, Replace, edit

MISSING = "mcp-file-adapter/missing"
"""The member of a list's ``_meta`` that names the servers of which it may not be whole, each with a reason."""

PAGE, PAGE_BYTES = 1000, 4 << 20
"""Entries of one page, and their bytes, though always one entry. Several hosts read the first page only, so that it has
more tools than they can use.
"""

_LINK = b"resourceUri"
_CURSOR = re.compile(r"([0-9a-f]{64})-([0-9]{1,6})")


TOOLS, PROMPTS = SHAPES[OfferKind.TOOL], SHAPES[OfferKind.PROMPT]
RESOURCES, TEMPLATES = SHAPES[OfferKind.RESOURCE], SHAPES[OfferKind.TEMPLATE]
KINDS: Mapping[str, ListShape] = {shape.method: shape for shape in SHAPES.values()}

TOLD = TOOLS, PROMPTS, RESOURCES
"""The lists of which servers say that they have changed; templates are resources there."""

_CHANGED = re.compile(rb"(tools|prompts|resources)\\?/list_changed")


def changes_in(message: bytes) -> tuple[ListShape, ...]:
    """The lists of which a message may say that they have changed."""
    if b"/list_changed" not in message:
        return ()
    found = _CHANGED.findall(message)
    return tuple(shape for shape in TOLD if shape.key.encode() in found) or TOLD


class ServerList(NamedTuple):
    """The entries of one server as they came, each with its name or URI. ``links``: one of them may link to another
    resource.
    """

    server: str
    entries: Sequence[tuple[str, bytes]]
    links: bool = False

    @classmethod
    def of(cls, server: str, entries: Sequence[tuple[str, bytes]]) -> ServerList:
        """The list of these entries."""
        return cls(server, entries, any(_LINK in item for _, item in entries))

    @property
    def names(self) -> list[str]:
        """The names or URIs of all entries."""
        return [name for name, _ in self.entries]


def stored_entries(value: bytes, shape: ListShape) -> Piecewise[list[tuple[str, bytes]]]:
    """The entries of a JSON array that was written down."""
    spans = yield from Reader(value).items(MOST_ITEMS)
    items = (value[start:end] for start, end in zip(spans[::2], spans[1::2], strict=True))
    return (yield from read_entries(shape, items))


def sign_in_tool(server: str) -> tuple[str, bytes]:
    """The tool that stands for all of a server whose caller has to sign in there first: a call of it has the link."""
    name = f"{server}_sign_in"
    description = (
        f"Signs in to {server}, whose tools are listed afterwards. The answer has a link for the person."
    )
    schema = {"type": "object", "properties": {}}
    return name, dump({"name": name, "description": description, "inputSchema": schema})


Change = Callable[[str, str, bytes], bytes | None]
"""Gives the entry of a server, with its name there, as clients see it; None where they do not."""


def change_of(kind: ListShape, names: NameTable | None, uris: UriTable) -> Change:
    """The change that entries of this kind need. ``names`` are those of tools or prompts."""
    if kind is TEMPLATES:
        return partial(_changed, kind.name, uris.shown_template, uris)
    return partial(_changed, kind.name, uris.shown if names is None else names.shown, uris)


def _changed(
    member: str, show: Callable[[str, str], str | None], uris: UriTable, server: str, name: str, entry: bytes
) -> bytes | None:
    """The entry under the name or URI that clients see, with links as they see them."""
    shown = show(server, name)
    if shown is None:
        return None
    edits: list[Edit] = [] if shown == name else [Replace((member,), dump(shown))]
    if _LINK in entry:
        edits += uris.edits(server, {"_meta": value_at(parse(entry), "_meta")})
    return edit(entry, edits) if edits else entry


class MergedList(NamedTuple):
    """The pages of a merged list, each a JSON array, with the ``digest`` and the ``size`` of all."""

    pages: Sequence[bytes]
    digest: bytes
    size: int

    def seal(self, whose: str, method: str) -> str:
        """The text that cursors of this list begin with, for this caller alone. It is the same in all processes that
        have the same list, and a caller can make up none of another list.
        """
        return hashlib.sha256(dump([whose, method]) + self.digest).hexdigest()


def merged(
    lists: Sequence[ServerList], change: Change, once: frozenset[str] = frozenset()
) -> Piecewise[MergedList]:
    """The list of all entries. Of the names ``once``, which are the adapter's own and the same for each server, only
    the first is there.
    """
    pages: list[bytes] = []
    texts: list[bytes] = []
    seen: set[str] = set()
    digest, size = hashlib.sha256(), 0
    for each in lists:
        for name, entry in each.entries:
            if name in once and name in seen:
                continue
            seen.add(name)
            changed = yield from one_piece(partial(change, each.server, name, entry), len(entry))
            if changed is None:
                continue
            if texts and (len(texts) == PAGE or size + len(changed) > PAGE_BYTES):
                pages.append(_array(texts))
                texts, size = [], 0
            texts.append(changed)
            size += len(changed)
            yield from one_piece(partial(digest.update, changed), len(changed))
    pages.append(_array(texts))
    return MergedList(pages, digest.digest(), sum(map(len, pages)))


def _array(texts: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(texts) + b"]"


def cursor_of(seal: str, page: int) -> str:
    """The cursor of that page of the list with this seal."""
    return f"{seal}-{page}"


def read_cursor(cursor: str) -> tuple[str, int] | None:
    """The seal and the page that a cursor names; None for one that no mount has made."""
    found = _CURSOR.fullmatch(cursor)
    return None if found is None else (found[1], int(found[2]))


def list_response(
    id_bytes: bytes,
    key: str,
    page: bytes,
    missing: Mapping[str, str],
    *,
    modern: bool,
    cursor: str | None = None,
) -> bytes:
    """The response to a request for a page of a list, with the ``cursor`` of the next; a modern one is for its caller
    alone.
    """
    rest: dict[str, Any] = {} if cursor is None else {"nextCursor": cursor}
    if modern:
        rest |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if missing:
        rest["_meta"] = {MISSING: dict(missing)}
    members = b"," + dump(rest)[1:-1] if rest else b""
    return b'{"jsonrpc":"2.0","id":%b,"result":{%b:%b%b}}' % (id_bytes, dump(key), page, members)
