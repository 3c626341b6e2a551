"""``core.replica``: this process among several that share a state store."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import field_validator

from adapter.settings.section import BlankIsNull, OptionalText, Section, Text


class ReplicaSettings(Section):
    """This process among several that share a state store."""

    id: Annotated[Text | None, BlankIsNull] = None
    """Name of this process, different from all others; null: a random one. 1 to 64 letters, digits, `.`, `_` and `-`.
    """
    address: OptionalText = None
    """Address at which other processes reach this one: a URL, or a host with or without a port. Null: the address
    that is bound, or the host's own.
    """
    listen: OptionalText = None
    """Additional `host:port` for other processes only; port 0 chooses a free one. Null: `core.port`."""

    @field_validator("id")
    @classmethod
    def _is_an_id(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", value):
            raise ValueError("must be 1 to 64 letters, digits, dots, underscores and hyphens")
        return value

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = _parts(value if "://" in value else f"http://{value}")
        if parts is None or parts[2]:
            raise ValueError("must be a URL without a path, a host, or a host:port")
        return value.rstrip("/")

    @field_validator("listen")
    @classmethod
    def _is_bindable(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = _parts(f"http://{value}")
        if "://" in value or parts is None or parts[1] is None or parts[2]:
            raise ValueError("must be host:port, with an IPv6 address in brackets")
        return value

    @property
    def bound(self) -> tuple[str, int] | None:
        """Host and port of ``listen``."""
        parts = None if self.listen is None else _parts(f"http://{self.listen}")
        return None if parts is None or parts[1] is None else (parts[0], parts[1])


def _parts(url: str) -> tuple[str, int | None, str] | None:
    """Host, port and whatever follows them of a URL; None for what is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or "@" in parts.netloc
        or re.search(r"\s", url)
    ):
        return None
    return parts.hostname, port, parts.path.strip("/") + parts.query + parts.fragment
