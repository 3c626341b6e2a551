"""The names of files in messages: ``upload://sessions/…`` handles and ``artifact://sessions/…`` URIs.

A text is exactly one handle or none. Nothing is repaired, so nothing behind a handle can lead elsewhere.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

_UPLOAD = re.compile(r"sessions/([0-9a-f]{32})/([0-9a-f]{32})")
_ARTIFACT = re.compile(
    r"sessions/([0-9a-f]{32})/([0-9a-f]{32})/((?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)"
)
_DOT_SEGMENTS = (".", "..")


class Handle(NamedTuple):
    """``scope`` and ``id`` are 32 hex digits; ``name`` is an artifact's file name, percent-decoded."""

    scope: str
    id: str
    name: str | None = None


def upload_handle(scope: str, file_id: str, scheme: str = "upload://") -> str:
    return f"{scheme}sessions/{scope}/{file_id}"


def artifact_uri(scope: str, file_id: str, filename: str, scheme: str = "artifact://") -> str:
    """A URI in plain ASCII that ``parse_artifact`` reads back, whatever the name holds. It must not be empty."""
    return f"{scheme}sessions/{scope}/{file_id}/{_segment(filename)}"


def parse_upload(text: str, scheme: str) -> Handle | None:
    """The handle that this text is, to the last character; None for any other text."""
    found = _UPLOAD.fullmatch(text, len(scheme)) if text.startswith(scheme) else None
    return None if found is None else Handle(*found.groups())


def parse_artifact(text: str, scheme: str) -> Handle | None:
    """The handle that this text is, to the last character; None for any other text.

    The name is what its sender called the file, so it may hold a slash: it is compared, never opened.
    """
    found = _ARTIFACT.fullmatch(text, len(scheme)) if text.startswith(scheme) else None
    if found is None:
        return None
    scope, file_id, segment = found.groups()
    if segment in _DOT_SEGMENTS:
        return None
    try:
        name = unquote_to_bytes(segment).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return Handle(scope, file_id, name)


def _segment(filename: str) -> str:
    # A program that tidies URLs would take a bare ".." for a step upwards.
    if filename in _DOT_SEGMENTS:
        return filename.replace(".", "%2E")
    return quote(filename.encode("utf-8", "surrogatepass"), safe="")
