"""The check of Host and Origin (RELAY §1, core.allowed_hosts and core.allowed_origins).

A web page can make a browser send requests to a loopback port, also under a name of its own (DNS rebinding).
The Host then names the page's domain and the Origin names the page, and both are refused here. Nothing in
this module raises, whatever a header holds.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from adapter.rules.access.network_addresses import is_loopback

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
