"""The base of the URLs that are handed out."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network

from adapter.edge.http.access import Guard
from adapter.edge.http.request import Fields, Request

_SCHEMES = ("http", "https")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
"""A Host as it may stand in a URL: people paste those into shells, so nothing else may come in with it."""

_BASE = object()


class Bases:
    """``public_base_url`` counts for every request, where there is one.

    Otherwise it is what the client itself said: a base that it can reach, and none that somebody else could
    have chosen, since only Hosts that ``guard`` serves count. ``X-Forwarded-Proto`` and ``X-Forwarded-Host``
    count when they come from a peer in ``trusted_proxies``.
    """

    def __init__(
        self,
        public_base_url: str | None,
        guard: Guard,
        trusted_proxies: Sequence[IPv4Network | IPv6Network] = (),
    ) -> None:
        self._public = public_base_url.rstrip("/") if public_base_url else None
        self._guard = guard
        self._proxies = tuple(trusted_proxies)

    def __repr__(self) -> str:
        return f"<Bases: {self._public or 'as the client says'}, {len(self._proxies)} proxy networks>"

    def of(self, request: Request) -> str:
        """``scheme://host`` without a final slash; empty if the client named no host that may stand in a URL, so that
        URLs are relative then.
        """
        if self._public is not None:
            return self._public
        # Requests on one connection share a head as long as it stays the same, and all of them their peer.
        base: str | None = request.headers.shared.get(_BASE)
        if base is None:
            base = request.headers.shared[_BASE] = self._said_by(request)
        return base

    def _said_by(self, request: Request) -> str:
        scheme, host, forwarded = "http", request.headers.get("Host", ""), ""
        if self._proxies and self._trusted(request.peer):
            forwarded_scheme = _last(request.headers, "x-forwarded-proto").lower()
            scheme = forwarded_scheme if forwarded_scheme in _SCHEMES else scheme
            forwarded = _last(request.headers, "x-forwarded-host")
        host = forwarded or host
        if _HOST.fullmatch(host) is None or not self._guard.serves(host, forwarded=bool(forwarded)):
            return ""
        return f"{scheme}://{host}"

    def _trusted(self, peer: str | None) -> bool:
        if peer is None:
            return False
        address = ipaddress.ip_address(peer.partition("%")[0])
        # A socket that takes both families shows IPv4 peers as ::ffff:a.b.c.d.
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self._proxies)


def _last(headers: Fields, name: str) -> str:
    """The value that the nearest proxy added, which is the last one. Earlier values may come from anybody."""
    values = [value for field, value in headers.pairs if field.lower() == name]
    return values[-1].rpartition(",")[2].strip() if values else ""
