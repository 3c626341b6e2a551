"""The era of a message, and the headers of a modern message that mirror its body.

Source of the rules: MCP 2026-07-28, "Streamable HTTP" (request metadata, value encoding, server validation)
and "Versioning" (backward compatibility).
"""

from __future__ import annotations

import base64
import re
from enum import Enum
from typing import Final

from adapter.errors import HeaderMismatch
from adapter.wire.envelope import Batch, Envelope, Kind


class Era(Enum):
    LEGACY = "legacy"
    MODERN = "modern"

    # Members are equal only to themselves, and Enum's own hash is a function of Python's.
    __hash__ = object.__hash__


LEGACY: Final = Era.LEGACY
MODERN: Final = Era.MODERN
"""The same under shorter names: in Python 3.11, to read a member of an Enum takes longer than a function call."""

MODERN_VERSIONS = ("2026-07-28",)
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MODERN_ONLY = frozenset({"server/discover", "subscriptions/listen"})
NAMED = frozenset({"tools/call", "resources/read", "prompts/get"})
"""Requests whose headers also have a name."""

_SENTINEL_START, _SENTINEL_END = "=?base64?", "?="
_FIELD_VALUE = re.compile(r"[\t\x20-\x7e]*")


def classify(version_header: str | None, envelope: Envelope | Batch | None) -> Era:
    """The era by what the client shows: its version header, the body's ``_meta``, a method of one era only.

    One modern sign is enough, so that malformed modern traffic is refused as such and not served as legacy;
    only ``initialize`` goes by the header alone, because it opens a legacy session whatever else it carries.
    """
    if version_header in MODERN_VERSIONS or (version_header is not None and is_modern(version_header)):
        return MODERN
    if isinstance(envelope, Batch):
        modern = any(_has_modern_sign(member) for member in envelope.members)
    else:
        modern = envelope is not None and _has_modern_sign(envelope)
    return MODERN if modern else LEGACY


def is_modern(version: str) -> bool:
    """Versions are dates; one that is none belongs to no modern revision."""
    return version >= MODERN_VERSIONS[0] and _VERSION.fullmatch(version) is not None


def _has_modern_sign(envelope: Envelope) -> bool:
    if envelope.method == "initialize":
        return False
    return envelope.meta.is_modern or envelope.method in _MODERN_ONLY


def check_mirrors(envelope: Envelope, *, version: str | None, method: str | None, name: str | None) -> None:
    """Compare the headers MCP-Protocol-Version, Mcp-Method and Mcp-Name with a modern message's body.

    A request must have them all (Mcp-Name only where the specification asks for it); of a notification or a
    response only what is present is compared. A body without a version is left to the upstream, whose answer
    names the versions it knows. Raises HeaderMismatch, naming the header.
    """
    request = envelope.kind is Kind.REQUEST
    if request and version is None:
        raise HeaderMismatch("The MCP-Protocol-Version header is missing.")
    if version is not None and envelope.meta.version not in (None, version):
        raise HeaderMismatch(
            "The MCP-Protocol-Version header differs from the protocol version in the body's _meta."
        )
    if envelope.kind is Kind.RESPONSE:
        return
    if request and method is None:
        raise HeaderMismatch("The Mcp-Method header is missing.")
    if method is not None and method != envelope.method:
        raise HeaderMismatch("The Mcp-Method header differs from the body's method.")
    if envelope.method in NAMED:
        _check_name(envelope, name)


def _check_name(envelope: Envelope, name: str | None) -> None:
    source = "params.uri" if envelope.method == "resources/read" else "params.name"
    if name is not None:
        if name == envelope.name and name[:1] != "=" and _FIELD_VALUE.fullmatch(name):
            return  # as it is spelled nearly always
        if decode_mirror(name, header="Mcp-Name") != envelope.name:
            raise HeaderMismatch(f"The Mcp-Name header differs from the body's {source}.")
    elif envelope.name is not None:
        # Without a name in the body there is nothing to mirror, and the upstream says best what it misses.
        raise HeaderMismatch(f"The Mcp-Name header is missing; it must be equal to the body's {source}.")


def decode_mirror(value: str, *, header: str = "A mirrored") -> str:
    """The text a mirrored header stands for. Raises HeaderMismatch on bad base64, UTF-8 or characters."""
    if _FIELD_VALUE.fullmatch(value) is None:
        raise HeaderMismatch(f"{header} header contains characters that a header may not have.")
    if not _is_sentinel(value):
        return value
    try:
        encoded = value[len(_SENTINEL_START) : -len(_SENTINEL_END)]
        return base64.b64decode(encoded, validate=True).decode("utf-8")
    except ValueError:
        raise HeaderMismatch(f"{header} header is not valid base64 of UTF-8.") from None


def encode_mirror(value: str | int | bool) -> str:
    """A parameter's value as its mirrored header spells it: plain where that is safe, else as base64."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    padded = value != value.strip(" \t")
    if not padded and _FIELD_VALUE.fullmatch(value) and not _looks_like_sentinel(value):
        return value
    # A lone surrogate has no UTF-8; the upstream refuses what stands for it here, instead of us failing.
    encoded = base64.b64encode(value.encode("utf-8", "surrogatepass")).decode("ascii")
    return _SENTINEL_START + encoded + _SENTINEL_END


def _looks_like_sentinel(value: str) -> bool:
    return value.startswith(_SENTINEL_START) and value.endswith(_SENTINEL_END)


def _is_sentinel(value: str) -> bool:
    # "=?base64?=" begins and ends like one, but its marks share a character.
    return _looks_like_sentinel(value) and len(value) >= len(_SENTINEL_START) + len(_SENTINEL_END)
