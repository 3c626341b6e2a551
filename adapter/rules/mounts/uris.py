"""URIs of resources at a merged mount: they stay what they are where one server owns them. Pure.

A URI belongs to the server that lists it, else to the one whose template fits it. One that belongs to another server,
or to none, is told apart by the mount's own scheme: ``mount://SERVER/URI``. Hosts look at the scheme of widgets, so
``ui://REST`` becomes ``ui://mount/SERVER/REST``. URIs of the adapter's own files are never told apart: callers pass
them from one server to another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

from adapter.errors import BadJson
from adapter.rules.mounts.names import Owner
from adapter.rules.text.expressions import LONGEST_URI, Expression, ExpressionInvalid
from adapter.wire.envelope import dump, parse
from adapter.wire.spans import Edit, Path, Replace, edit

SCHEME: Final = "mount://"
_WIDGET = "ui://"
_WIDGETS = "ui://mount/"
_MARKS = (SCHEME, _WIDGETS)

UPDATED: Final = "notifications/resources/updated"

LARGEST: Final = 1 << 20
"""Bytes of a message in which URIs are told apart."""

MOST_COMPARED: Final = 20
"""Blocks of a result whose URIs are compared with templates. In a longer one those that nobody lists are told apart."""

LONGEST_COMPARED: Final = 1024
"""Characters of a URI in a list or result that is compared with templates; a longer one that nobody lists is told
apart.
"""

MOST_BLOCKS: Final = 400
"""Blocks of a result in which URIs are told apart."""

_WITH_BLOCKS = ("content", "messages", "contents")

MOST_TEMPLATES: Final = 200
"""Templates of one server that are compared."""

_VARIABLE = re.compile(r"\{[^{}]*\}")
_FLAT_UI = "ui/resourceUri"


HINTS: Final = (b'"uri"', b"resourceUri", b"\\u")
"""One of these is in any message that has a URI: an escape may hide a key."""


def names_uri(data: bytes) -> bool:
    """Tell whether a message may have a URI that is to be told apart."""
    return any(hint in data for hint in HINTS)


def told_apart(server: str, uri: str) -> str:
    """The URI with the mark of its server."""
    if uri.startswith(_WIDGET):
        return f"{_WIDGETS}{server}/{uri.removeprefix(_WIDGET)}"
    return f"{SCHEME}{server}/{uri}"


@dataclass(frozen=True, slots=True)
class ServerUris:
    """The URIs and the templates that one server lists, or listed last."""

    server: str
    uris: frozenset[str] = frozenset()
    templates: tuple[tuple[str, Expression], ...] = ()

    @classmethod
    def of(cls, server: str, uris: Iterable[str], templates: Iterable[str]) -> ServerUris:
        """Templates that cannot be read fit nothing; the most exact of the others comes first."""
        read = []
        for template in list(dict.fromkeys(templates))[:MOST_TEMPLATES]:
            # A template that begins with a variable fits whatever there is.
            if not template.startswith("{") and (expression := _expression(template)) is not None:
                read.append((template, expression))
        read.sort(key=lambda each: -_fixed(each[0]))
        return cls(server, frozenset(uris), tuple(read))


def _expression(template: str) -> Expression | None:
    try:
        return Expression("(?s)" + ".*".join(map(re.escape, _VARIABLE.split(template))))
    except ExpressionInvalid:
        return None


def _fixed(template: str) -> int:
    """The characters before the first variable."""
    return len(template.partition("{")[0])


class UriTable:
    """The URIs of all servers of a mount, in the order of its servers. ``files``: beginnings of those of the adapter's
    own files, which belong to whoever lists them.
    """

    def __init__(self, servers: Sequence[ServerUris], files: tuple[str, ...] = ()) -> None:
        self._files = files
        # Libraries write what they take for a host in small letters.
        self._ids = {each.server.lower(): each.server for each in servers}
        self._listed: dict[str, str] = {}
        for each in servers:
            for uri in each.uris:
                self._listed.setdefault(uri, each.server)
        ordered = sorted(
            (
                (template, expression, each.server)
                for each in servers
                for template, expression in each.templates
            ),
            key=lambda found: -_fixed(found[0]),
        )
        self._templates = ordered
        self._owners_of_templates: dict[str, str] = {}
        for each in servers:
            for template, _ in each.templates:
                self._owners_of_templates.setdefault(template, each.server)

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
            server
            for template, fits, server in self._templates
            if uri.startswith(template.partition("{")[0]) and fits.is_all_of(uri)
        )
        return next(fitting, None)

    def shown(self, server: str, uri: str) -> str:
        """The URI of a server as clients see it: ``owner`` leads from it back to that server."""
        if self._files and uri.startswith(self._files):
            return uri
        if uri.startswith(_MARKS):
            return told_apart(server, uri)
        # The mark leads back as well as a comparison of a long URI with all templates, which takes its time.
        is_long = len(uri) > LONGEST_COMPARED and len(self._ids) > 1
        owner = self._listed.get(uri) if is_long else self._owner_of_plain(uri)
        return uri if owner == server else told_apart(server, uri)

    def shown_template(self, server: str, template: str) -> str:
        """The template of a server as clients see it: whatever fits it leads back to that server."""
        owner = self._owners_of_templates.get(template)
        if len(self._ids) == 1 or (owner == server and not template.startswith(_MARKS)):
            return template
        return told_apart(server, template)

    # --- messages ---------------------------------------------------------------------------------------------

    def _of_listed(self) -> UriTable:
        """The table that compares no templates."""
        found = copy(self)
        found._templates = []
        return found

    def told_apart(self, server: str, data: bytes) -> bytes:
        """A message of the server with the URIs that clients know. One that is too much to be looked into stays."""
        if len(data) > LARGEST:
            return data
        try:
            message = parse(data)
        except BadJson:
            return data
        if not isinstance(message, dict):
            return data
        result, params = message.get("result"), message.get("params")
        edits: list[Edit] = []
        if isinstance(result, dict):
            if (blocks := _blocks(result)) > MOST_BLOCKS:
                return data
            table = self if blocks <= MOST_COMPARED else self._of_listed()
            edits = table.edits_of_result(server, result, ("result",))
        elif message.get("method") == UPDATED and isinstance(params, dict):
            edits = self.edit_of(server, ("params", "uri"), params.get("uri"))
        return edit(data, edits) if edits else data

    # --- edits --------------------------------------------------------------------------------------------------

    def edits_of_links(self, server: str, linking: Mapping[str, Any], path: Path = ()) -> list[Edit]:
        """The edits of a definition or result at ``path`` that links to a widget of its server (MCP Apps)."""
        meta = linking.get("_meta")
        if not isinstance(meta, dict):
            return []
        ui = meta.get("ui")
        nested = ui.get("resourceUri") if isinstance(ui, dict) else None
        return [
            *self.edit_of(server, (*path, "_meta", "ui", "resourceUri"), nested),
            *self.edit_of(server, (*path, "_meta", _FLAT_UI), meta.get(_FLAT_UI)),
        ]

    def edit_of(self, server: str, path: Path, uri: object) -> list[Edit]:
        """The edit of the value at ``path``, if it is a URI that clients see otherwise."""
        if not isinstance(uri, str) or (shown := self.shown(server, uri)) == uri:
            return []
        return [Replace(tuple(path), dump(shown))]

    def edits_of_result(self, server: str, result: Mapping[str, Any], path: Path) -> list[Edit]:
        """The edits of a result that stands at ``path``: of a tool, a prompt or a resource that was read."""
        edits = self.edits_of_links(server, result, path)
        for place, block in _objects(result.get("content")):
            edits += self._of_block(server, block, (*path, "content", place))
        for place, message in _objects(result.get("messages")):
            said = message.get("content")
            if isinstance(said, dict):
                edits += self._of_block(server, said, (*path, "messages", place, "content"))
        for place, contents in _objects(result.get("contents")):
            edits += self.edit_of(server, (*path, "contents", place, "uri"), contents.get("uri"))
        return edits

    def _of_block(self, server: str, block: Mapping[str, Any], path: Path) -> list[Edit]:
        if block.get("type") == "resource_link":
            return self.edit_of(server, (*path, "uri"), block.get("uri"))
        resource = block.get("resource") if block.get("type") == "resource" else None
        if isinstance(resource, dict):
            return self.edit_of(server, (*path, "resource", "uri"), resource.get("uri"))
        return []


def _blocks(result: Mapping[str, Any]) -> int:
    """The number of blocks of a result: each may have one URI."""
    return sum(len(found) for key in _WITH_BLOCKS if isinstance(found := result.get(key), list))


def _objects(found: object) -> list[tuple[int, dict[str, Any]]]:
    values = found if isinstance(found, list) else ()
    return [(place, each) for place, each in enumerate(values) if isinstance(each, dict)]
