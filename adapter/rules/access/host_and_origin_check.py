"""The check of Host and Origin (RELAY §1, core.allowed_hosts and core.allowed_origins).

A web page can make a browser send requests to a loopback port, also under a name of its own (DNS rebinding).
The Host then names the page's domain and the Origin names the page, and both are refused here. Nothing in
this module raises, whatever a header holds.

Addresses that no stranger may have asked: of networks in every spelling, also within others, and of URLs. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Literal, NamedTuple
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


_LONGEST = 300  # a DNS name has 253 characters; what is longer names no host and is not worth remembering
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s\[\]:/?#@\\\x00-\x20\x7f]+))(?::([0-9]{1,5}))?")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_OF_PROXIES = frozenset({"forwarded", "via", "x-real-ip"})
_WEB_PORTS = {"http": "80", "https": "443"}


class _Place(NamedTuple):
    """A name in lower case or a canonical address, and the port where one was written."""

    host: str
    port: str | None
    scheme: str | None = None


def host_allowed(host_header: str | None, *, bound_to_loopback: bool, allowed: Sequence[str] | None) -> bool:
    """Tell whether a request with this Host is served. A Host that is not ``name[:port]`` never is."""
    if host_header is None:
        return not bound_to_loopback if allowed is None else "*" in allowed
    place = _authority(host_header)
    if place is None:
        return False
    if allowed is None:
        return not bound_to_loopback or _is_loopback(place.host)
    return any(entry == "*" or _host_matches(place, entry) for entry in allowed)


def is_local(headers: Mapping[str, str]) -> bool:
    """Tell whether a head is of a caller on this machine: it names a loopback Host, and no proxy has passed it on.

    A proxy on this machine may send a loopback name as Host for a caller who is elsewhere. Only for an adapter that is
    bound to loopback: others can write what they like.
    """
    for name in map(str.lower, headers):
        if name in _OF_PROXIES or name.startswith("x-forwarded-"):
            return False
    return host_allowed(headers.get("Host"), bound_to_loopback=True, allowed=None)


def origin_allowed(origin: str | None, host_header: str | None, *, allowed: Sequence[str] | None) -> bool:
    """Tell whether a page at ``origin`` may call: same-host, loopback or listed. Without an Origin: yes."""
    if origin is None:
        return True
    listed = allowed or ()
    if "*" in listed:
        return True
    # "null" is what sandboxed frames and local files send, and any page can make itself one of those.
    if origin.strip().lower() == "null":
        return any(entry.strip().lower() == "null" for entry in listed)
    page = _origin(origin)
    if page is None:
        return False
    if page.scheme in _WEB_PORTS:
        served = None if host_header is None else _authority(host_header)
        if _is_loopback(page.host) or (served is not None and served.host == page.host):
            return True
    return any(_origin_matches(page, entry) for entry in listed)


def same_authority(scheme: str, authority: str, host_header: str) -> bool:
    """Return True if an absolute target's authority is the Host's; a missing port is the one the scheme implies."""
    said, served = _authority(authority), _authority(host_header)
    implied = _WEB_PORTS.get(scheme.lower())
    if said is None or served is None or implied is None:
        return False
    return said.host == served.host and (said.port or implied) == (served.port or implied)


def _host_matches(place: _Place, entry: str) -> bool:
    wanted = _entry(entry)
    if wanted is None or wanted.host != place.host:
        return False
    # A client leaves out the port that its scheme implies, and the Host does not say the scheme.
    ports = ("80", "443") if place.port is None else (place.port,)
    return wanted.port is None or wanted.port in ports


def _origin_matches(page: _Place, entry: str) -> bool:
    wanted = _entry(entry)
    if wanted is None or wanted.host != page.host or wanted.scheme not in (None, page.scheme):
        return False
    return wanted.port is None or wanted.port == (page.port or _WEB_PORTS.get(page.scheme or ""))


def _origin(text: str) -> _Place | None:
    """``scheme://host[:port]``, which is all an Origin may be."""
    place = _entry(text)
    return None if place is None or place.scheme is None else place


def _entry(text: str) -> _Place | None:
    """An entry of a list: an Origin, or a host with or without its port; ``::1`` also without brackets."""
    scheme, separator, rest = text.strip().rpartition("://")
    if not separator:
        return _authority(f"[{rest}]" if rest.count(":") > 1 and "[" not in rest else rest)
    if _SCHEME.fullmatch(scheme.lower()) is None:
        return None
    place = _authority(rest.removesuffix("/"))
    return None if place is None else place._replace(scheme=scheme.lower())


def _authority(text: str) -> _Place | None:
    return _parsed_authority(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=256)
def _parsed_authority(text: str) -> _Place | None:
    found = _AUTHORITY.fullmatch(text.strip(" \t").lower())
    if found is None:
        return None
    address, name, port = found.groups()
    if address is None:
        name = name.removesuffix(".")
        return _Place(name, port and str(int(port))) if name else None
    try:
        return _Place(f"[{ipaddress.IPv6Address(address)}]", port and str(int(port)))
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _is_loopback(host: str) -> bool:
    return is_loopback(host.removeprefix("[").removesuffix("]"))
