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


def name_reading(name: str) -> str | None:
    """The name that readers take this one for; None if that is uncertain."""
    return None if has_no_reading(name) else reading(name)


def uri_reading(uri: str) -> str | None:
    """The URI that a server may take this one for; None if that is uncertain.

    Escapes are resolved, also of escapes. A backslash is a slash, several slashes are one, and ``.`` and ``..`` are
    resolved wherever they stand, because a server may take any part for a path.
    """
    if len(uri) > LONGEST_URI:
        return None
    plain = uri
    for _ in range(_ROUNDS):
        if "\0" in plain:
            return None
        text = reading(plain)
        plain = unquote(text)
        if plain == text:
            return _without_dots(text.replace("\\", "/"))
    return None


def _without_dots(text: str) -> str:
    first, *rest = text.split("/")
    kept = [first]
    for place, segment in enumerate(rest, 1):
        # A server of Java's takes what follows a semicolon for a parameter of the segment.
        step = segment.partition(";")[0]
        is_last = place == len(rest)
        if step == "..":
            kept[1:] = kept[1:-1]
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
