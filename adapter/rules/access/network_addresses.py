"""Addresses that no stranger may have asked: of networks in every spelling, also within others, and of URLs. Pure."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Literal
from urllib.parse import SplitResult, urlsplit

NetworkKind = Literal["public", "private", "local", "loopback"]
"""``local`` is the link's own network, where clouds keep their secrets."""

_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.DOTALL)
"""Hosts that systems and browsers read as an IPv4 address, such as 127.1, 0x7f.1 and 2130706433 (URL standard)."""

_TRANSLATED = IPv6Network("64:ff9b::/96")
_TRANSLATED_HERE = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = IPv6Network("::/96")


def canonical_host(host: str) -> str:
    """A host of a URL in lower case, without the final dots with which it means the same."""
    return host.lower().rstrip(".")


def host_spellings(host: str, port: int) -> set[str]:
    """The ways to write a host of a URL, with its port and for all ports; an address of IPv6 has brackets in URLs."""
    shown = f"[{host}]" if ":" in host else host
    return {host, shown, f"{shown}:{port}"}


def is_inner_host(host: str) -> bool:
    """Tell whether a host of a URL is an address that is not public. Names are none; numbers that are an address in an
    unusual spelling always are: nobody who means well writes one.
    """
    host = canonical_host(host)
    try:
        return network_kind(host) != "public"
    except ValueError:
        return _ENDS_IN_NUMBER.fullmatch(host) is not None


def network_kind(address: str) -> NetworkKind:
    """The kind of the network that an address leads to, by way of a translator or tunnel too. Raises ValueError."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv4Address) or found.is_loopback or found.is_unspecified:
        return _own_kind(found)
    kinds = {_own_kind(each) for each in _within(found)} or {_own_kind(found)}
    return min(kinds, key=("loopback", "local", "private", "public").index)


def _within(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that routers, or the system itself, find in one of IPv6."""
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _TRANSLATED or address in _COMPATIBLE:
        return (IPv4Address(int(address) & 0xFFFFFFFF),)
    return ()


def _own_kind(address: IPv4Address | IPv6Address) -> NetworkKind:
    if address.is_loopback or address.is_unspecified:
        return "loopback"
    if address.is_link_local:
        return "local"
    # Some versions of the library know neither.
    inner = isinstance(address, IPv6Address) and (address.is_site_local or address in _TRANSLATED_HERE)
    return "public" if address.is_global and not (address.is_multicast or inner) else "private"


# --- URLs that strangers have named --------------------------------------------------------------------------------

LONGEST_URL = 2048
"""Characters of a URL in a document."""


def read_url(url: str, longest: int = LONGEST_URL) -> SplitResult | None:
    """The parts of a URL in a document; None for one without a host, with credentials or a fragment, or of characters
    that no URL has, or more than ``longest``.
    """
    if len(url) > longest or not (url.isascii() and url.isprintable()) or not _FOREIGN.isdisjoint(url):
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
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_loopback_host(host: str | None) -> bool:
    """Tell whether a host of a URL is this machine, by its name alone."""
    if host is None:
        return False
    host = canonical_host(host)
    return host.endswith(".localhost") or is_loopback(host)
