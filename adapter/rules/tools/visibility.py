"""The part of an upstream's tools that clients may see: which tools, and how much of their prose. Pure.

The policies run in this order: disabled tools are removed, the others are sanitized, their descriptions are shortened,
and wrapped tools describe how files reach them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from adapter.rules.files.tool_definitions import Wrapped, wrapped
from adapter.rules.text.expressions import Expression
from adapter.rules.text.unicode import has_no_reading, nfkc, reading, visible
from adapter.rules.tools.definitions import Prose, prose, rewritten

# Three dots: the one character for them is not in form NFKC.
_MORE = "..."
# Escapes other than of quotes, backslashes, slashes, tabs and newlines.
_ESCAPED = re.compile(rb"\\[bfru]")
_UNLIMITED = 1 << 31
_SENTENCE = re.compile(r".*?[.!?…。！？](?=\s|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sanitization:
    """Cleaning of texts; limits are in characters, None is none. ``block`` hides a tool that would change."""

    mode: Literal["off", "sanitize", "block"] = "sanitize"
    normalize_unicode: bool = True
    remove_invisible: bool = True
    max_title: int | None = 256
    max_description: int | None = 16384
    max_schema_text: int | None = 8192

    def clean(self, piece: Prose, text: str) -> str:
        """The text without what is not allowed. The result depends only on the text and its place."""
        if self.remove_invisible:
            text = visible(text)
        if self.normalize_unicode:
            text = nfkc(text)
        return cut(text, self.limit(piece))

    def limit(self, piece: Prose) -> int | None:
        """The most characters of a text, None for any number."""
        if piece.in_schema:
            return self.max_schema_text
        return self.max_title if piece.is_title else self.max_description

    def finds_nothing(self, flat: bytes) -> bool:
        """Tell whether surely no text of a definition would change, at a tenth of the cost of cleaning each.

        ``flat`` is the definition as ``_flat`` makes it.
        """
        if not (flat.isascii() or _is_clean(flat.decode("utf-8"))):
            return False
        limits = (self.max_title, self.max_description, self.max_schema_text)
        titles, descriptions, texts = (_UNLIMITED if limit is None else limit for limit in limits)
        return _longer(min(titles, texts), min(descriptions, texts)).search(flat) is None


def _flat(definition: bytes) -> bytes | None:
    """The definition with spaces in place of escaped backslashes and quotes, so that no quote is within a text.

    None if it may hold characters that only reading its texts shows.
    """
    flat = definition.replace(rb"\\", b"  ").replace(rb"\"", b"  ") if b"\\" in definition else definition
    return None if b"\x7f" in flat or _ESCAPED.search(flat) else flat


def _is_clean(text: str) -> bool:
    return nfkc(text) == text == visible(text)


@lru_cache(maxsize=64)
def _longer(title: int, description: int) -> re.Pattern[bytes]:
    """Finds a title or description that has more characters, where no text holds an escaped quote."""
    return re.compile(
        rb'"(?:title"\s*+:\s*+"[^"]{%d}|description"\s*+:\s*+"[^"]{%d})' % (title + 1, description + 1)
    )


@dataclass(frozen=True, slots=True)
class Descriptions:
    """The part of the descriptions that clients get. The ``limit``, in characters, is that of ``truncate``."""

    mode: Literal["preserve", "truncate", "strip"] = "preserve"
    limit: int | None = 280

    def kept(self, piece: Prose, text: str) -> str | None:
        """The part of a text that clients get, None to leave the text out. Titles stay as they are."""
        if piece.is_title or self.mode == "preserve":
            return text
        if self.mode == "strip":
            return None
        return cut(text, self.limit)

    def finds_nothing(self, flat: bytes | None) -> bool:
        """Tell whether surely all descriptions of a definition would stay as they are; see Sanitization."""
        if self.mode != "truncate":
            return self.mode == "preserve"
        limit = _UNLIMITED if self.limit is None else self.limit
        return flat is not None and _longer(_UNLIMITED, limit).search(flat) is None


class _Folding(NamedTuple):
    exact: Expression
    folded: Expression


@dataclass(frozen=True, slots=True)
class Disabled:
    """The tools that nobody sees or calls: each entry is a name, and also an expression for whole names."""

    readings: frozenset[str] = frozenset()
    expressions: tuple[_Folding, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> Disabled:
        """Compile the entries. Raises ExpressionInvalid for one that is no regular expression."""
        names = tuple(entries)
        compiled = [(name, Expression(name), Expression(name, ignore_case=True)) for name in names]
        return cls(
            frozenset(map(reading, names)),
            # An expression without special characters matches itself alone, which is looked up.
            tuple(_Folding(exact, folded) for name, exact, folded in compiled if re.escape(name) != name),
        )


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies for the tools of one server. ``shorten`` leaves wrapped tools ``short_words`` words at most.

    ``structured`` are the wrapped tools whose structured content may list artifacts.
    """

    sanitization: Sanitization = Sanitization()
    descriptions: Descriptions = Descriptions()
    shorten: bool = False
    short_words: int = 16
    disabled: Disabled = Disabled()
    wrapped: Mapping[str, Wrapped] = field(default_factory=dict)
    structured: frozenset[str] = frozenset()

    @property
    def change_nothing(self) -> bool:
        """Tell whether every definition is shown as it came."""
        quiet = self.sanitization.mode == "off" and self.descriptions.mode == "preserve"
        return quiet and not self.disabled.readings and not self.wrapped


class ShapedDefinition(NamedTuple):
    """A definition as clients see it: ``raw`` is None for a hidden tool, the very object that came if nothing changed.

    ``changed`` names the members in which sanitization found something. ``blocked``: the tool is hidden for its
    definition, not for its name. ``plain`` is the definition without what the adapter adds to it, None if it adds
    nothing: pins are of that, so that other words of the adapter are no drift.
    """

    raw: bytes | None
    changed: frozenset[str] = frozenset()
    blocked: bool = False
    plain: bytes | None = None


ShapeTool = Callable[[str, bytes], ShapedDefinition]


def is_disabled(policies: Policies, name: str) -> bool:
    """Tell whether a tool of this name is disabled, so that clients may neither see nor call it.

    A name that reads like a disabled one is disabled too. If any is disabled, so is a name that has no reading.
    """
    disabled = policies.disabled
    if not disabled.readings:
        return False
    if has_no_reading(name):
        return True
    read = reading(name)
    return read in disabled.readings or any(
        expression.exact.is_all_of(name) or expression.folded.is_all_of(read)
        for expression in disabled.expressions
    )


def hides(policies: Policies) -> Callable[[str], bool]:
    """Return the test whether a tool of the upstream is hidden: it is not listed and cannot be called by its name.

    A disabled tool is hidden. So is a tool whose name the upstream might take for that of a wrapped tool or of
    the helper: a call of it would get around that tool.
    """
    helpers = {rule.helper for rule in policies.wrapped.values() if rule.kind != "producer"}
    readings = {reading(name) for name in (*policies.wrapped, *helpers)}

    def hidden(name: str) -> bool:
        if is_disabled(policies, name):
            return True
        if not readings or name in policies.wrapped:
            return False
        return has_no_reading(name) or reading(name) in readings

    return hidden


def apply(policies: Policies, name: str, definition: bytes) -> ShapedDefinition:
    """The definition (valid JSON) of a tool as clients may see it.

    Only the texts that change are written; all other bytes stay. What is no object stays as it is.
    """
    if is_disabled(policies, name):
        return ShapedDefinition(None)
    rule = policies.wrapped.get(name)
    shaping = _edited(policies, definition, shortens=policies.shorten and rule is not None)
    if shaping.raw is None or rule is None:
        return shaping
    raw, _ = wrapped(shaping.raw, rule, structured=name in policies.structured)
    return shaping._replace(raw=raw, plain=shaping.raw)


def _edited(policies: Policies, definition: bytes, *, shortens: bool) -> ShapedDefinition:
    """The definition with its prose sanitized and shortened, hidden if sanitization blocks it."""
    sanitization, descriptions = policies.sanitization, policies.descriptions
    flat = _flat(definition)
    cleans = sanitization.mode != "off" and (flat is None or not sanitization.finds_nothing(flat))
    if not cleans and not shortens and descriptions.finds_nothing(flat):
        return ShapedDefinition(definition)
    texts: list[tuple[Prose, str | None]] = []
    cleaned = set()
    for piece in prose(definition):
        original = text = piece.text(definition)
        if cleans:
            text = sanitization.clean(piece, original)
            if text != original:
                cleaned.add(piece.where)
        final = descriptions.kept(piece, text)
        if shortens and final is not None and piece.where == "description":
            final = first_sentence(final, policies.short_words)
        if final != original:
            texts.append((piece, final))
    if cleaned and sanitization.mode == "block":
        return ShapedDefinition(None, blocked=True)
    return ShapedDefinition(rewritten(definition, texts) if texts else definition, frozenset(cleaned))


def cut(text: str, limit: int | None) -> str:
    """``text`` in at most ``limit`` characters; dots at the end of a cut text count among them."""
    if limit is None or len(text) <= limit:
        return text
    return text[: max(0, limit - len(_MORE))].rstrip() + _MORE[:limit]


def first_sentence(text: str, most_words: int) -> str:
    """The first sentence of ``text``, and of that at most so many words."""
    found = _SENTENCE.match(text.strip())
    sentence = (found[0] if found else text).strip()
    # A long text is split no further than needed.
    words = sentence.split(None, most_words)
    return sentence if len(words) <= most_words else " ".join(words[:most_words]) + _MORE
