"""Metadata of authorization servers: the places where it may be, and what of it can be trusted. Pure.

Source of the rules: RFC 8414 §3, OpenID Connect Discovery 1.0 §4, and the order in which MCP has clients ask.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from adapter.rules.access.token_claims import read_object

LONGEST_URL = 2048
"""Characters of a URL in a document."""


def server_metadata_urls(issuer: str) -> tuple[str, ...]:
    """The places of an issuer's metadata, in the order in which MCP has clients ask them."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
    ]
    if path:
        urls.append(f"{origin}{path}/.well-known/openid-configuration")
    return tuple(urls)


class IssuerMetadata(NamedTuple):
    """The document of an issuer about itself; of its members only those that are asked for are looked at."""

    issuer: str
    members: Mapping[str, Any]

    def url(self, name: str) -> str:
        """The URL in a member, such as ``jwks_uri`` or ``token_endpoint``. Raises ValueError for one that is missing
        or must not be asked.
        """
        value = self.members.get(name)
        if not isinstance(value, str):
            raise ValueError(f"the issuer's metadata has no {name}")
        if not may_be_asked(value, self.issuer):
            raise ValueError(f"the {name} of the issuer's metadata is not a usable URL")
        return value


def read_metadata(document: bytes, issuer: str, *, forgiving: bool = False) -> IssuerMetadata:
    """Read the metadata of ``issuer``. Raises ValueError, also for that of any other.

    Otherwise one server could have another one's keys or codes (RFC 8414 §3.3 and §6.2, mix-up). ``forgiving``: a
    slash at the end may differ, as it does in many documents that name authorization servers.
    """
    members = read_object(document)
    named = members.get("issuer")
    if named != issuer and not (
        forgiving and isinstance(named, str) and named.rstrip("/") == issuer.rstrip("/")
    ):
        must = "" if forgiving else "; the setting must be equal to it to the last character"
        raise ValueError(f"the metadata names another issuer{must}")
    return IssuerMetadata(named, members)


def may_be_asked(url: str, issuer: str) -> bool:
    """Tell whether a URL that an issuer's metadata names may be asked.

    It is https; or http to this machine, where the issuer itself is reached so: any other issuer could have the
    adapter ask its neighbours.
    """
    parts, trusted = read_url(url), split_url(issuer)
    if parts is None or trusted is None:
        return False
    if parts.scheme == "https":
        return True
    return (
        parts.scheme == trusted.scheme == "http"
        and is_loopback(parts.hostname or "")
        and is_loopback(trusted.hostname or "")
    )


def read_url(url: str) -> SplitResult | None:
    """The parts of a URL in a document; None for one without a host, with credentials or a fragment, or of characters
    that no URL has.
    """
    if len(url) > LONGEST_URL or not (url.isascii() and url.isprintable()) or not _FOREIGN.isdisjoint(url):
        return None
    parts = split_url(url)
    return None if parts is None or not parts.hostname or parts.port == 0 or "@" in parts.netloc else parts


_FOREIGN = frozenset(' \\#"<>')


def split_url(url: str) -> SplitResult | None:
    """The parts of a text, None where it is no URL."""
    try:
        parts = urlsplit(url)
        # Read for what they raise.
        _ = parts.hostname, parts.port
    except ValueError:
        return None
    return parts


def is_loopback(host: str) -> bool:
    """Tell whether a host of a URL is this machine: ``localhost``, or an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
