"""The part of an attribute that may leave the process."""

from __future__ import annotations

from collections.abc import Callable

from adapter.rules.text.events import encodable, is_telling

Value = str | int | float | bool

MOST_KNOWN = 1024
LONGEST_KNOWN = 64
"""Characters of a text that is known again: names of tools and stages are in every span."""

HIDDEN = "[REDACTED]"


class AttributeRedaction:
    """Hides the value of a telling key whatever it is, and passes all other text through ``redact``.

    ``redact`` takes credentials and connection strings out of a text, and may shorten it.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._harmless: set[tuple[str, str]] = set()

    def __call__(self, key: str, value: Value) -> Value:
        """The value that is recorded under this key."""
        if isinstance(value, str) and (key, value) in self._harmless:
            return value
        if is_telling(key):
            return HIDDEN
        if not isinstance(value, str):
            return value
        told = encodable(self._redact(value))
        if told == value and len(value) <= LONGEST_KNOWN:
            if len(self._harmless) >= MOST_KNOWN:
                self._harmless.clear()
            self._harmless.add((key, value))
        return told

    def message(self, error: BaseException) -> str:
        """The text of an exception, as far as it may be told."""
        try:
            return encodable(self._redact(str(error)))
        except Exception:
            # An exception of somebody's code, whose __str__ is that code too.
            return ""
