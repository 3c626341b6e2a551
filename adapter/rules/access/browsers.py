"""Rules that keep a browser from running an answer of a mount at the adapter's own address, where its console is."""

from __future__ import annotations

from collections.abc import Iterable

NOSNIFF = ("X-Content-Type-Options", "nosniff")
SANDBOX = ("Content-Security-Policy", "sandbox; default-src 'none'")
"""A document under this policy runs no script, loads nothing and has an origin of its own (CSP 3, HTML sandboxing)."""


def guarded(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the fields of a mount's answer with NOSNIFF added, and SANDBOX for a body that may be a page.

    A body is no page if it is JSON or an event stream.
    """
    fields = [*headers, NOSNIFF]
    # Of several Content-Type fields, or of a list in one, a browser may choose another than the adapter would.
    kinds = [value for name, value in fields if name.lower() == "content-type"]
    if len(kinds) != 1 or not _is_data(kinds[0]):
        fields.append(SANDBOX)
    return fields


def is_json_type(content_type: str | None) -> bool:
    """Return True if a Content-Type names JSON, which no form of another site's page can send (Fetch standard)."""
    kind = _essence(content_type or "")
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def navigates(sec_fetch_mode: str | None) -> bool:
    """Return True if a browser will show the answer as a page or in a frame (Fetch metadata)."""
    return sec_fetch_mode is not None and sec_fetch_mode.strip().lower() in ("navigate", "nested-navigate")


def _is_data(content_type: str) -> bool:
    if "," in content_type:
        return False
    return is_json_type(content_type) or _essence(content_type) == "text/event-stream"


def _essence(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
