"""Interface blocks for people who write scripts: each helper takes its content and hints on how to show it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adapter.rules.presenters.blocks import UiBlock
from adapter.rules.text.json_values import indented

_TICKS = re.compile("`{3,}")


def echarts(
    content: Mapping[str, Any],
    *,
    title: str | None = None,
    width: str | None = None,
    priority: int | float | None = None,
) -> UiBlock:
    """A chart with ECharts options."""
    return UiBlock("echarts", _fenced("echarts", indented(content)), title, width, priority)


def mermaid(
    content: str,
    *,
    title: str | None = None,
    width: str | None = None,
    priority: int | float | None = None,
) -> UiBlock:
    """A diagram in Mermaid syntax."""
    return UiBlock("mermaid", _fenced("mermaid", content), title, width, priority)


def code(
    content: str,
    *,
    language: str = "",
    title: str | None = None,
    width: str | None = None,
    priority: int | float | None = None,
) -> UiBlock:
    """Source code; the language, if given, is the type of the block."""
    return UiBlock(language or "code", _fenced(language, content), title, width, priority)


def json(
    content: Any,
    *,
    title: str | None = None,
    width: str | None = None,
    priority: int | float | None = None,
) -> UiBlock:
    """Any value, as indented JSON. Raises NotJson."""
    return UiBlock("json", _fenced("json", indented(content)), title, width, priority)


def markdown(
    content: str,
    *,
    title: str | None = None,
    width: str | None = None,
    priority: int | float | None = None,
) -> UiBlock:
    """Markdown, unchanged."""
    return UiBlock("markdown", content, title, width, priority)


def table(
    content: Sequence[Mapping[str, Any] | Sequence[Any]],
    *,
    title: str | None = None,
    width: str | None = None,
    priority: int | float | None = None,
) -> UiBlock:
    """A Markdown table of objects (their keys are the header) or of rows (the first row is the header)."""
    rows = _rows(content)
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    if lines:
        lines.insert(1, f"| {' | '.join('---' for _ in rows[0])} |")
    return UiBlock("markdown", "\n".join(lines), title, width, priority)


def list(
    content: Iterable[Any],
    *,
    title: str | None = None,
    width: str | None = None,
    priority: int | float | None = None,
) -> UiBlock:
    """A Markdown list with one bullet for each item."""
    return UiBlock("markdown", "\n".join(f"- {_inline(item)}" for item in content), title, width, priority)


def summary(
    content: str,
    *,
    title: str | None = None,
    width: str | None = None,
    priority: int | float | None = None,
) -> UiBlock:
    """A sentence that summarizes the data."""
    return UiBlock("summary", f"📊 **Summary**: {content}", title, width, priority)


def _rows(content: Sequence[Mapping[str, Any] | Sequence[Any]]) -> Sequence[Sequence[Any]]:
    objects = [row for row in content if isinstance(row, Mapping)]
    if len(objects) < len(content):
        return [row for row in content if not isinstance(row, Mapping)]
    head = [*dict.fromkeys(key for row in objects for key in row)]
    return [head, *([row.get(key) for key in head] for row in objects)] if objects else []


def _fenced(language: str, body: str) -> str:
    """The body in a fence that is longer than any in it, so that it cannot end it."""
    longest = max((len(ticks) for ticks in _TICKS.findall(body)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{body}\n{fence}"


def _cell(value: Any) -> str:
    return _inline(value).replace("|", "\\|")


def _inline(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else indented(value)
    return " ".join(text.split())
