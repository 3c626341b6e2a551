"""The tags in which texts for a model are wrapped, and what keeps a value from forging one. Pure."""

from __future__ import annotations

import re

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
