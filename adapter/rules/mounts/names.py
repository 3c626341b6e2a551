"""The names under which a merged mount shows the tools and prompts of its servers, and the owner of each. Pure.

A name belongs to one server, by rules that any process follows alike and that do not depend on which server answers:
the adapter's own tools first, then the servers in their order. The names of a server that does not answer are those
that it had last, so that no other server gets them meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from adapter.rules.text.expressions import NamePattern, name_reading
from adapter.wire.piecewise import Piecewise

LONGEST: Final = 64
"""Characters of a name that hosts accept; the others refuse the whole list."""

_EACH = 256

_DIGITS = 8
"""Of the digest in a shortened name."""

_ACCEPTED = re.compile(r"[A-Za-z0-9_-]+")
_SHORTENED = re.compile(rf"_[0-9a-f]{{{_DIGITS}}}\Z")
_OTHERS = re.compile(r"[^A-Za-z0-9_-]+")


class Owner(NamedTuple):
    """The server that a name of the mount belongs to, and its name there."""

    server: str
    name: str


class HiddenName(NamedTuple):
    """A name of ``hidden`` that the mount does not show, because ``owner`` has it."""

    shown: str
    owner: Owner
    hidden: Owner

    def __str__(self) -> str:
        return f"{self.hidden.name} of {self.hidden.server} is hidden: {self.shown} belongs to {self.owner.server}"


def accepted(name: str) -> str:
    """The name itself where hosts accept it, else a shorter one of the same beginning with a digest at its end."""
    if len(name) <= LONGEST and _ACCEPTED.fullmatch(name):
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    beginning = _OTHERS.sub("_", name[:LONGEST])[: LONGEST - _DIGITS - 1]
    return f"{beginning}_{digest}"


@dataclass(frozen=True, slots=True)
class NamingRules:
    """How a mount names things of one kind: with the ids of their servers or not, and which it shows at all."""

    prefixed: bool = True
    allow: tuple[NamePattern, ...] = (NamePattern("*"),)
    deny: tuple[NamePattern, ...] = ()

    def prefix(self, server: str) -> str:
        """The beginning of the names of this server."""
        return f"{server}_" if self.prefixed else ""

    def full_name(self, server: str, name: str, own: frozenset[str]) -> str:
        """The name with its prefix. The adapter's own tools of a server begin with its id already."""
        return name if name in own else self.prefix(server) + name

    def allows(self, full_name: str) -> bool:
        """Tell whether the mount shows this; patterns are for names as clients see them.

        A name that had to be shortened is denied under both names.
        """
        shown = accepted(full_name)
        names = {full_name, shown} if self.deny else ()
        if any(_denies(pattern, name) for pattern in self.deny for name in names):
            return False
        return any(
            pattern.source == "*" or pattern.allows(shown, shown.lower(), uri=False) for pattern in self.allow
        )


def _denies(pattern: NamePattern, name: str) -> bool:
    read = name_reading(name)
    return pattern.denies(name, name if read is None else read, uri=False)


@dataclass(frozen=True, slots=True)
class ServerNames:
    """The names that one server has, or had last, and those of the adapter's own tools of it, as a mount shows them."""

    server: str
    own: frozenset[str]
    shown: Mapping[str, str]
    """The name at the server for each name that may be shown."""

    shortened: frozenset[str] = frozenset()
    """Those of ``shown`` that are not the server's own name with the prefix."""

    clashes: tuple[tuple[str, str], ...] = ()
    """Names that are shown, each with another name of this server that would be shown so."""

    @classmethod
    def of(
        cls, rules: NamingRules, server: str, names: Iterable[str], own: frozenset[str] = frozenset()
    ) -> Piecewise[ServerNames]:
        """The names of a list, in its order."""
        full = {name: rules.full_name(server, name, own) for name in names}
        short = {name: accepted(full[name]) for name in full}
        # A name that hosts accept wins over one that is shortened to it, wherever both stand in the list.
        ordered = sorted(full, key=lambda name: (name not in own, short[name] != full[name]))
        shown: dict[str, str] = {}
        clashes = []
        for place, name in enumerate(ordered):
            if place % _EACH == 0:
                yield None
            if rules.allows(full[name]) and shown.setdefault(short[name], name) != name:
                clashes.append((short[name], name))
        shortened = frozenset(here for here, name in shown.items() if here != full[name])
        return cls(server, own, shown, shortened, tuple(clashes))


class NameTable:
    """The names of all servers of a mount, in the order of its servers.

    ``hidden`` are names that are not shown, because another has them.
    """

    def __init__(self, rules: NamingRules, servers: Sequence[ServerNames]) -> None:
        self._rules = rules
        self._servers = {each.server: each for each in servers}
        self._owners: dict[str, Owner] = {}
        self._by_prefix = sorted(servers, key=lambda each: -len(each.server))
        # First, so that no server takes the name under which another gets its files.
        for each in servers:
            for shown, name in each.shown.items():
                if name in each.own:
                    self._owners.setdefault(shown, Owner(each.server, name))
        self.hidden = tuple(hidden for each in servers for hidden in self._taken(each))

    def __repr__(self) -> str:
        return f"<NameTable: {len(self._owners)} names of {list(self._servers)}>"

    def _taken(self, server: ServerNames) -> Iterator[HiddenName]:
        """Give a server the names that are free, and return the others."""
        for shown, name in (*server.shown.items(), *server.clashes):
            here = Owner(server.server, name)
            if (owner := self._owners.setdefault(shown, self._by_right(shown, here))) != here:
                yield HiddenName(shown, owner, here)

    def _by_right(self, shown: str, here: Owner) -> Owner:
        """The owner of a name that begins with the longer prefix of another server too, whether that has it or not."""
        for each in self._by_prefix if self._rules.prefixed else ():
            prefix = self._rules.prefix(each.server)
            if len(each.server) > len(here.server) and shown.startswith(prefix):
                return Owner(each.server, shown.removeprefix(prefix))
        return here

    def owner(self, shown: str) -> Owner | None:
        """The owner of a name that a client uses; None where there is none.

        A name that is in no list may still be one of a server that shows some tools to some callers, or none so far:
        the longest prefix decides, or that there is one server.
        """
        return self._owners.get(shown) or self._unlisted(shown)

    def is_certain(self, shown: str) -> bool:
        """Tell whether the lists of servers that are not known here can say nothing else about the owner of a name.

        Only they tell which name was shortened to one that looks so.
        """
        if _SHORTENED.search(shown):
            return False
        prefixes = (self._rules.prefix(each) for each in self._servers)
        return self._unlisted(shown) is not None and sum(map(shown.startswith, prefixes)) == 1

    def _unlisted(self, shown: str) -> Owner | None:
        if (not self._rules.prefixed and len(self._servers) > 1) or shown != accepted(shown):
            return None
        for each in self._by_prefix:
            name = shown if shown in each.own else shown.removeprefix(self._rules.prefix(each.server))
            # A server's tool that is called like one of the adapter's own is not there.
            if name and self._rules.full_name(each.server, name, each.own) == shown:
                return Owner(each.server, name) if self._rules.allows(shown) else None
        return None

    def shown(self, server: str, name: str) -> str | None:
        """The name under which the mount shows this name of a list of the server; None where it is not shown."""
        here = accepted(self._rules.full_name(server, name, self._servers[server].own))
        return here if self._owners.get(here) == (server, name) else None
