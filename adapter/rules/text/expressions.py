"""Regular expressions, globs and patterns of names that somebody else wrote: of settings, schemas, scripts. Pure.

They run on RE2, whose time is linear in the text whatever the expression says; what it could only do by backtracking,
look-around and back-references, it refuses. Length, memory and so also the time of compiling are bounded here.

A glob is a pattern of dotted names: ``*`` is one segment, ``**`` any number of them, ``get-*`` a segment that begins
so. A pattern of names or URIs, as operators write them in access rules, has ``*`` for any characters and ``?`` for one.

A name comes from a stranger, and a server may read another name in it: in another case, without characters that nobody
sees, a URI with its escapes resolved and without ``..``. So a pattern is also compared as it reads with the name as it
reads. ``allows`` needs both to match, ``denies`` one of them. What has no certain reading is never allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol, cast
from urllib.parse import unquote

from adapter.rules.text.unicode import has_no_reading, reading

LONGEST = 4_096
"""Characters of an expression."""

MEMORY = 1 << 20
"""Bytes that a compiled expression may take, together with what it remembers of the texts it has seen."""


class ExpressionInvalid(ValueError):
    """A text that this engine cannot compile; ``str`` is the reason in a few words."""


class _Match(Protocol):
    def group(self, number: int) -> bytes | None: ...


class _Program(Protocol):
    """The part of a compiled expression of ``re2`` that is used here; the library has no types of its own."""

    programsize: int
    groups: int

    def fullmatch(self, text: bytes) -> _Match | None: ...

    def finditer(self, text: bytes) -> Iterator[_Match]: ...


class Expression:
    """An expression in RE2's syntax, compiled. ``memory`` is in bytes. Raises ExpressionInvalid.

    ``size`` is the number of its instructions: matching takes at most as many steps for each byte of a text.
    """

    __slots__ = ("_program", "size", "source")

    def __init__(self, source: str, *, ignore_case: bool = False, memory: int = MEMORY) -> None:
        self.source = source
        self._program = _compiled(source, ignore_case, memory)
        self.size = self._program.programsize

    def __repr__(self) -> str:
        return f"<Expression {self.source!r}>"

    def is_all_of(self, text: str) -> bool:
        """Tell whether the whole text matches."""
        return self._program.fullmatch(_bytes(text)) is not None

    def claims(self, text: str) -> Iterator[str]:
        """Of each match, in order, the first group, or the whole where there is none; a group that is not in the match
        is empty.
        """
        number = 1 if self._program.groups else 0
        for found in self._program.finditer(_bytes(text)):
            yield (found.group(number) or b"").decode("utf-8", "surrogatepass")


def _compiled(source: str, ignore_case: bool, memory: int) -> _Program:
    if len(source) > LONGEST:
        raise ExpressionInvalid(f"it is longer than {LONGEST} characters")
    # Late: with the library of C++ behind it the engine takes 2.6 MiB, and many settings hold no expression. Those
    # that do load it while they are checked, before anything is served.
    import re2

    options: Any = re2.Options()
    options.max_mem = memory
    options.case_sensitive = not ignore_case
    # Else the engine itself writes to standard error.
    options.log_errors = False
    try:
        # Bytes, because texts of strangers may hold lone surrogates.
        return cast(_Program, re2.compile(_bytes(source), options))
    except re2.error as error:
        raise ExpressionInvalid(_why(error)) from None
    finally:
        # The library keeps what it compiled, without looking at how much that takes.
        re2.purge()


def _why(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    return text if len(text) <= 100 else text[:99] + "…"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_LONGEST_GLOB = 256


class GlobInvalid(ValueError):
    """A text that is no pattern."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern for whole names."""

    pattern: str
    _expression: Expression = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        segments = self.pattern.split(".")
        if not all(segments) or len(self.pattern) > _LONGEST_GLOB:
            raise GlobInvalid(
                f"A pattern must be names with dots between them, with at most {_LONGEST_GLOB} characters."
            )
        if any("**" in segment and segment != "**" for segment in segments):
            raise GlobInvalid(f"In a pattern, ** must be alone between dots; not {self.pattern!r}.")
        object.__setattr__(self, "_expression", _expression_of(self.pattern))

    def __str__(self) -> str:
        return self.pattern

    def matches(self, name: str) -> bool:
        """Tell whether the pattern matches this name."""
        return self._expression.is_all_of(f"{name}.")

    def covers(self, other: Glob) -> bool:
        """Tell whether this pattern surely matches every name that ``other`` matches."""
        # Its stars are characters of a segment here, and its ** is a segment that only a ** matches.
        return self.matches(other.pattern.replace("**", _MANY))


_MANY = "\ue002"
"""A character of the private use area, for the segments of another pattern's ``**``."""


@lru_cache(maxsize=256)
def _expression_of(pattern: str) -> Expression:
    """The expression for names with a dot at their end."""
    return Expression("".join(map(_part_of, pattern.split("."))))


def _part_of(segment: str) -> str:
    if segment == "**":
        return r"(?:[^.]*\.)*"
    inner = re.escape(segment).replace(r"\*", f"[^.{_MANY}]*")
    return inner + r"\."


# --- names and URIs ---------------------------------------------------------------------------------------------

LONGEST_PATTERN: Final = 512
"""Characters of a pattern of names."""

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
        if not source or len(source) > LONGEST_PATTERN:
            raise ExpressionInvalid(f"a pattern has 1 to {LONGEST_PATTERN} characters")
        if _ANY in source or _ONE in source or _DOTS.search(source):
            raise ExpressionInvalid(
                "a pattern has no segment . or .., and no character of a private use area"
            )
        self.source = source
        marked = source.replace("*", _ANY).replace("?", _ONE)
        self._exact = _of_marked(marked)
        self._name = _of_marked(reading(marked))
        as_uri = uri_reading(marked)
        if as_uri is None:
            raise ExpressionInvalid("its escapes cannot be resolved")
        self._uri = _of_marked(as_uri)

    def __repr__(self) -> str:
        return f"<NamePattern {self.source!r}>"

    def allows(self, name: str, read: str, *, uri: bool) -> bool:
        """Tell whether the pattern matches a name as it is written, and also as it is ``read``."""
        return self._exact.is_all_of(name) and (self._uri if uri else self._name).is_all_of(read)

    def denies(self, name: str, read: str, *, uri: bool) -> bool:
        """Tell whether the pattern matches a name as it is written, or as it is ``read``."""
        return self._exact.is_all_of(name) or (self._uri if uri else self._name).is_all_of(read)


def _of_marked(marked: str) -> Expression:
    return Expression("(?s)" + "".join(_WILD.get(each) or re.escape(each) for each in marked))
