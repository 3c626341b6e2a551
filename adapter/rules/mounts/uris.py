"""URIs of resources at a merged mount: they stay what they are where one server owns them. Pure.

A URI belongs to the server that lists it, else to the one whose template fits it. One that belongs to another server,
or to none, is told apart by the mount's own scheme: ``mount://SERVER/URI``. Hosts look at the scheme of widgets, so
``ui://REST`` becomes ``ui://mount/SERVER/REST``. URIs of the adapter's own files are never told apart: callers pass
them from one server to another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from adapter.rules.mounts.names import Owner
from adapter.rules.text.expressions import LONGEST_URI, Expression, ExpressionInvalid
from adapter.wire.envelope import dump, list_at, value_at
from adapter.wire.spans import Edit, Path, Replace

SCHEME: Final = "mount://"
_WIDGET = "ui://"
_WIDGETS = "ui://mount/"
_MARKS = (SCHEME, _WIDGETS)

UPDATED: Final = "notifications/resources/updated"

MOST_COMPARED: Final = 20
"""Blocks of a result whose URIs are compared with templates. In a longer one those that nobody lists are told apart."""

LONGEST_COMPARED: Final = 1024
"""Characters of a URI in a list or result that is compared with templates; a longer one that nobody lists is told
apart.
"""

MOST_BLOCKS: Final = 400
"""Blocks of a result in which URIs are told apart."""

MOST_TEMPLATES: Final = 200
"""Templates of one server that are compared."""

_VARIABLE = re.compile(r"\{[^{}]*\}")

_LINKS = (("_meta", "ui", "resourceUri"), ("_meta", "ui/resourceUri"))
"""The places at which a definition or result links to a widget of its server (MCP Apps)."""

_BLOCKS = (("content", ()), ("messages", ("content",)), ("contents", ()))
"""The lists of a result whose entries, or this member of them, may have a URI."""

_IN_BLOCK = {"resource_link": ("uri",), "resource": ("resource", "uri")}
"""The places of the URI, by the types of blocks."""


def told_apart(server: str, uri: str) -> str:
    """The URI with the mark of its server."""
    if uri.startswith(_WIDGET):
        return f"{_WIDGETS}{server}/{uri.removeprefix(_WIDGET)}"
    return f"{SCHEME}{server}/{uri}"


class ServerUris(NamedTuple):
    """The URIs and the templates that one server lists, or listed last."""

    server: str
    uris: Collection[str] = ()
    templates: Collection[str] = ()

    def readable(self) -> Iterator[tuple[str, Expression]]:
        """The templates that something may fit."""
        for template in list(dict.fromkeys(self.templates))[:MOST_TEMPLATES]:
            # A template that begins with a variable fits whatever there is.
            if not template.startswith("{") and (expression := _expression(template)) is not None:
                yield template, expression


def _expression(template: str) -> Expression | None:
    try:
        return Expression("(?s)" + ".*".join(map(re.escape, _VARIABLE.split(template))))
    except ExpressionInvalid:
        return None


class UriTable:
    """The URIs of all servers of a mount, in the order of its servers. ``files``: beginnings of those of the adapter's
    own files, which belong to whoever lists them.
    """

    def __init__(self, servers: Sequence[ServerUris], files: tuple[str, ...] = ()) -> None:
        self._files = files
        # Libraries write what they take for a host in small letters.
        self._ids = {each.server.lower(): each.server for each in servers}
        self._listed: dict[str, str] = {}
        self._owners_of_templates: dict[str, str] = {}
        fitting = []
        for server in servers:
            for uri in server.uris:
                self._listed.setdefault(uri, server.server)
            for template, expression in server.readable():
                self._owners_of_templates.setdefault(template, server.server)
                fitting.append((template.partition("{")[0], expression, server.server))
        # The most exact comes first.
        self._templates = sorted(fitting, key=lambda each: -len(each[0]))

    def __repr__(self) -> str:
        return f"<UriTable: {len(self._listed)} URIs, {len(self._templates)} templates>"

    def owner(self, uri: str) -> Owner | None:
        """The server that a URI, as a client writes it, belongs to, and the URI there; None where nobody has it."""
        for mark in _MARKS:
            if uri.startswith(mark):
                server, slash, rest = uri[len(mark) :].partition("/")
                owner = self._ids.get(server.lower()) if slash else None
                return None if owner is None else Owner(owner, _WIDGET + rest if mark == _WIDGETS else rest)
        found = self._owner_of_plain(uri)
        return None if found is None else Owner(found, uri)

    def _owner_of_plain(self, uri: str) -> str | None:
        if (listed := self._listed.get(uri) or self._owners_of_templates.get(uri)) is not None:
            return listed
        if len(self._ids) == 1:
            return next(iter(self._ids.values()))
        if len(uri) > LONGEST_URI:
            return None
        fitting = (
            server for start, fits, server in self._templates if uri.startswith(start) and fits.is_all_of(uri)
        )
        return next(fitting, None)

    def shown(self, server: str, uri: str, *, compared: bool = True) -> str:
        """The URI of a server as clients see it: ``owner`` leads from it back to that server. ``compared``: it may fit
        a template.
        """
        if self._files and uri.startswith(self._files):
            return uri
        if uri.startswith(_MARKS):
            return told_apart(server, uri)
        # The mark leads back as well as a comparison of a long URI with all templates, which takes its time.
        is_listed_only = not compared or (len(uri) > LONGEST_COMPARED and len(self._ids) > 1)
        owner = self._listed.get(uri) if is_listed_only else self._owner_of_plain(uri)
        return uri if owner == server else told_apart(server, uri)

    def shown_template(self, server: str, template: str) -> str:
        """The template of a server as clients see it: whatever fits it leads back to that server."""
        owner = self._owners_of_templates.get(template)
        if len(self._ids) == 1 or (owner == server and not template.startswith(_MARKS)):
            return template
        return told_apart(server, template)

    # --- edits --------------------------------------------------------------------------------------------------

    def edits(self, server: str, linking: Any, path: Path = ()) -> list[Edit]:
        """The edits of the server's definition or result at ``path`` whose URIs clients see otherwise. A result that is
        too much to be looked into stays.
        """
        blocks = sum(len(list_at(linking, key)) for key, _ in _BLOCKS)
        found = () if blocks > MOST_BLOCKS else _uris_in(linking)
        return self._edits(server, path, found, compared=blocks <= MOST_COMPARED)

    def edits_of_message(self, server: str, message: Any) -> list[Edit]:
        """The edits of a message of the server."""
        uri = value_at(message, "params", "uri")
        if message.get("method") == UPDATED and isinstance(uri, str):
            return self._edits(server, ("params",), [(("uri",), uri)])
        return self.edits(server, message.get("result"), ("result",))

    def _edits(
        self, server: str, path: Path, found: Iterable[tuple[Path, str]], *, compared: bool = True
    ) -> list[Edit]:
        shown = ((place, uri, self.shown(server, uri, compared=compared)) for place, uri in found)
        return [Replace((*path, *place), dump(now)) for place, uri, now in shown if now != uri]


def _uris_in(linking: Any) -> Iterator[tuple[Path, str]]:
    """The URIs of a definition or result, each with its place."""
    places: list[tuple[Path, Any]] = [(place, value_at(linking, *place)) for place in _LINKS]
    for key, member in _BLOCKS:
        for number, entry in enumerate(list_at(linking, key)):
            block = value_at(entry, *member)
            kind = value_at(block, "type")
            place = ("uri",) if key == "contents" else _IN_BLOCK.get(kind if isinstance(kind, str) else "")
            if place is not None:
                places.append(((key, number, *member, *place), value_at(block, *place)))
    for where, uri in places:
        if isinstance(uri, str):
            yield where, uri
