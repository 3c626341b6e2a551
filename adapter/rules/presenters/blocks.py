"""Blocks that may stand beside a result's data: interface, directives, rules, suggestions, and their texts. Pure.

Values in them are untrusted: none can close its block or open another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_BLOCKS = "ui_passthrough|llm_directives|domain_rules|action_suggestions|cache_invalidation"
_FAILURES = "tool_error|validation_error"
_TAG = re.compile(rf"<(?=[\s/]*(?:{_BLOCKS}|{_FAILURES})\b)", re.IGNORECASE)
_IN_ATTRIBUTES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})


def element_text(text: str) -> str:
    """The text as the content of an element. ``>`` stays, so that ``>= 1`` remains readable."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def attribute(text: str) -> str:
    """The text as an attribute's value, between quotes of either kind."""
    return text.translate(_IN_ATTRIBUTES)


def without_tags(text: str) -> str:
    """The text in which none of our tags begins or ends; everything else stays, Markdown and HTML too."""
    return _TAG.sub("&lt;", text)


def json_without_tags(text: str) -> str:
    """JSON of the same value, in which none of our tags can be read."""
    # JSON has `<` only inside strings, where the escape says the same.
    return _TAG.sub(r"\\u003c", text)


def one_line(text: str) -> str:
    """The text as one entry of a list: a line break in it would begin another."""
    return without_tags(" ".join(text.splitlines()))


@dataclass(frozen=True, slots=True)
class UiBlock:
    """Something to show as it is. ``type`` is the kind of ``content``; the rest are hints to who lays it out."""

    type: str
    content: str
    title: str | None = None
    width: str | None = None
    priority: int | float | None = None

    def text(self) -> str:
        """The block in its tags."""
        hints = {"title": self.title, "width": self.width, "priority": self.priority}
        given = {"type": self.type, **{name: hint for name, hint in hints.items() if hint is not None}}
        attributes = " ".join(f'{name}="{attribute(str(value))}"' for name, value in given.items())
        return f"<ui_passthrough {attributes}>\n{without_tags(self.content)}\n</ui_passthrough>"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A tool worth calling next, and why."""

    tool: str
    reason: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Blocks:
    """All that stands beside one result's data. ``embedded`` are finished texts of the results within it."""

    ui: tuple[UiBlock, ...] = ()
    embedded: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()

    def __add__(self, other: Blocks) -> Blocks:
        return Blocks(
            self.ui + other.ui,
            self.embedded + other.embedded,
            self.hints + other.hints,
            self.rules + other.rules,
            self.suggestions + other.suggestions,
        )

    def texts(self) -> Iterator[str]:
        """One text per block, in the order in which they follow the data."""
        for block in self.ui:
            yield block.text()
        yield from self.embedded
        yield from _listed("llm_directives", self.hints)
        yield from _listed("domain_rules", self.rules)
        yield from _listed("action_suggestions", map(str, self.suggestions))


NO_BLOCKS = Blocks()


def _listed(tag: str, entries: Iterable[str]) -> Iterator[str]:
    lines = [f"- {one_line(entry)}" for entry in entries]
    if lines:
        yield "\n".join((f"<{tag}>", *lines, f"</{tag}>"))
