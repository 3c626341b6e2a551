"""Patterns for names and URIs, as operators write them: ``*`` is any characters, ``?`` is one. Pure.

A name comes from a stranger, and a server may read another name in it: in another case, without characters that nobody
sees, a URI with its escapes resolved and without ``..``. So a pattern is also compared as it reads with the name as it
reads. ``allows`` needs both to match, ``denies`` one of them. What has no certain reading is never allowed.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from adapter.rules.text.expressions import Expression, ExpressionInvalid
from adapter.rules.text.unicode import has_no_reading, reading

LONGEST: Final = 512
"""Characters of a pattern."""

LONGEST_URI: Final = 8192
"""Characters of a URI that is judged."""

_ROUNDS = 4
"""Times that the escapes in a URI are resolved; one that has some left is read by nobody in one way."""

# No character of the private use area is left out of a reading, and no name of a pattern needs one.
_ANY, _ONE = "\ue000", "\ue001"
_WILD: Final = {_ANY: ".*", _ONE: "."}
_DOTS = re.compile(r"(?:^|[/\\])\.\.?(?:[/\\]|$)")

# The URL standard (WHATWG, "URL parsing") has parsers remove these wherever they stand.
_REMOVED: Final = dict.fromkeys(map(ord, "\t\n\r"))

_DEFAULT_PORTS: Final = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21", "file": ""}
"""The schemes whose URLs parsers bring into one form, whatever slashes they begin with (WHATWG, special schemes)."""


def name_reading(name: str) -> str | None:
    """The name that readers take this one for; None if that is uncertain."""
    return None if has_no_reading(name) else reading(name)


def uri_reading(uri: str) -> str | None:
    """The URI that a server may take this one for; None if that is uncertain.

    Escapes are resolved, also of escapes, and tabs and line breaks are removed, as parsers of URLs do. A backslash is a
    slash, several slashes are one, and ``.`` and ``..`` are resolved wherever they stand, because a server may take any
    part for a path.
    """
    plain = _resolved(uri)
    return None if plain is None else _without_dots(plain)


def uri_part_reading(uri: str) -> str | None:
    """The URI as a server may take it that looks at host and path alone; None if that is uncertain.

    It has no query, no fragment, no parameters of segments, no user and no port that the scheme has anyway; a URI of a
    file has no host (RFC 8089 has them be local). A rule that denies has to match this one too.
    """
    plain = _resolved(uri)
    if plain is None:
        return None
    plain = plain.partition("?")[0].partition("#")[0]
    scheme, colon, rest = plain.partition(":")
    if colon and scheme in _DEFAULT_PORTS:
        rest = _hosted(scheme, rest)
        plain = f"{scheme}:/{rest}"
    read = _without_dots(plain)
    return "/".join(segment.partition(";")[0] for segment in read.split("/")).rstrip("/")


def _hosted(scheme: str, rest: str) -> str:
    """Host and path of a URL without what says nothing of the place, and without slashes at its beginning."""
    slashes = len(rest) - len(rest.lstrip("/"))
    host, slash, path = rest[slashes:].partition("/")
    if scheme == "file":
        return path if slashes == 2 else host + slash + path
    place = host.rpartition("@")[2].removesuffix(f":{_DEFAULT_PORTS[scheme]}").removesuffix(":")
    return place.removesuffix(".") + slash + path


def _resolved(uri: str) -> str | None:
    """The URI as it reads without escapes, with slashes for backslashes; None if it has no certain reading."""
    if len(uri) > LONGEST_URI:
        return None
    plain = uri
    for _ in range(_ROUNDS):
        if "\0" in plain:
            return None
        text = reading(plain).translate(_REMOVED)
        # One character may read like eighteen.
        if len(text) > LONGEST_URI:
            return None
        plain = unquote(text)
        if plain == text:
            return text.replace("\\", "/")
    return None


def _without_dots(text: str) -> str:
    first, *rest = text.split("/")
    kept = [first]
    for place, segment in enumerate(rest, 1):
        # A server of Java's takes what follows a semicolon for a parameter of the segment.
        step = segment.partition(";")[0]
        is_last = place == len(rest)
        if step == "..":
            del kept[max(1, len(kept) - 1) :]
        elif step not in ("", "."):
            kept.append(segment)
        if is_last and step in ("", ".", ".."):
            kept.append("")
    return "/".join(kept)


class NamePattern:
    """A pattern for names of tools and prompts, and for URIs. Raises ExpressionInvalid for one that cannot be used."""

    __slots__ = ("_exact", "_name", "_uri", "source")

    def __init__(self, source: str) -> None:
        if not source or len(source) > LONGEST:
            raise ExpressionInvalid(f"a pattern has 1 to {LONGEST} characters")
        if _ANY in source or _ONE in source or _DOTS.search(source):
            raise ExpressionInvalid(
                "a pattern has no segment . or .., and no character of a private use area"
            )
        self.source = source
        marked = source.replace("*", _ANY).replace("?", _ONE)
        self._exact = _compiled(marked)
        self._name = _compiled(reading(marked))
        as_uri = uri_reading(marked)
        if as_uri is None:
            raise ExpressionInvalid("its escapes cannot be resolved")
        self._uri = _compiled(as_uri)

    def __repr__(self) -> str:
        return f"<NamePattern {self.source!r}>"

    def allows(self, name: str, read: str, *, uri: bool) -> bool:
        """Tell whether the pattern matches a name as it is written, and also as it is ``read``."""
        return self._exact.is_all_of(name) and (self._uri if uri else self._name).is_all_of(read)

    def denies(self, name: str, read: str, *, uri: bool) -> bool:
        """Tell whether the pattern matches a name as it is written, or as it is ``read``."""
        return self._exact.is_all_of(name) or (self._uri if uri else self._name).is_all_of(read)


def _compiled(marked: str) -> Expression:
    return Expression("(?s)" + "".join(_WILD.get(each) or re.escape(each) for each in marked))
