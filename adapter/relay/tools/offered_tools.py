"""The tools of its server that a scope is offered, with the definitions as its client may see them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from adapter.rules.tools.definitions import Tool
from adapter.rules.tools.drift import Drift
from adapter.rules.tools.tool_pages import with_warning

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
        if self.warns is None or not self.warns_of(name):
            return definition
        return with_warning(definition, name, self.warns)

    def warns_of(self, name: str) -> bool:
        return self.warns is not None and name in self.warns.unsettled


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
