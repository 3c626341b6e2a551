"""What a scope is offered of its server's tools, with the definitions as its client may see them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from adapter.rules.drift import Change, Drift, Rename, warned
from adapter.rules.tools import Tool
from adapter.wire.envelope import dump, parse
from adapter.wire.spans import Insert, edit

KEPT = 4
"""Catalogues of one server whose definitions are kept."""


@dataclass(frozen=True, slots=True)
class Offered:
    """``definitions`` are those of the catalogue ``digest``, by name; the scope may use the ``allowed`` of them.

    ``warns`` is what has changed of them since the scope first saw them, and is to be told with them.
    """

    digest: str
    definitions: Mapping[str, bytes]
    allowed: Set[str]
    warns: Drift | None = None

    def definition(self, name: str) -> bytes | None:
        """A tool's definition as the client of this scope may see it, None if it may not."""
        definition = self.definitions.get(name)
        if definition is None or name not in self.allowed:
            return None
        if not self.warns_of(name):
            return definition
        assert self.warns is not None
        described = parse(definition).get("description")
        text = warned(described if isinstance(described, str) else None, reasons(self.warns).get(name))
        return edit(definition, [Insert(("description",), dump(text))])

    def warns_of(self, name: str) -> bool:
        return self.warns is not None and name in self.warns.unsettled


def reasons(found: Drift) -> dict[str, Change | Rename]:
    """What drift says of the tools of now, by name; nothing of those that were added."""
    changed: dict[str, Change | Rename] = {change.name: change for change in found.changed}
    return changed | {rename.new: rename for rename in found.renamed}


class Definitions:
    """The definitions of the catalogues of a server that were read last, as clients see them."""

    def __init__(self) -> None:
        self._by_digest: OrderedDict[str, Mapping[str, bytes]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Definitions of {len(self._by_digest)} catalogues>"

    def keep(self, digest: str, tools: Iterable[Tool]) -> None:
        """Of several tools of one name the last counts, as it does in the catalogue."""
        self._by_digest[digest] = {tool.name: tool.raw for tool in tools}
        self._by_digest.move_to_end(digest)
        if len(self._by_digest) > KEPT:
            self._by_digest.popitem(last=False)

    def of(self, digest: str) -> Mapping[str, bytes] | None:
        return self._by_digest.get(digest)
