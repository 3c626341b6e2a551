"""Addresses of networks that no stranger may have asked: in every spelling, also within others. Pure."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Literal

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
