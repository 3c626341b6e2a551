"""Authorization servers by the documents that they and the servers they protect publish. Pure.

Source of the rules: RFC 8414 (metadata), OpenID Connect Discovery 1.0, RFC 9728 (protected resources), RFC 9207
(``iss``), and MCP 2026-07-28, "Authorization Server Discovery" and "Client Registration". Every document is a
stranger's: its size is bounded by who fetched it, and its members here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from adapter.rules.access.browser_sessions import origin_of
from adapter.rules.access.host_and_origin_check import (
    LONGEST_URL,
    is_inner_host,
    is_loopback_host,
    read_url,
    split_url,
)
from adapter.rules.access.token_claims import read_object

MOST_NAMES = 64
"""Scopes, methods or servers of a document that are looked at."""

LONGEST_SCOPE = 256

OAUTH_CURE = "people sign in there (OAuth); set upstream.auth.type: authorization_code"
"""The advice for an upstream that answers 401 and names its metadata."""

_PARAMETER = re.compile(r'(?:^|[\s,])(resource_metadata|scope)="([^"\\]{1,2048})"')

_SCOPE_CHARACTERS = frozenset(map(chr, (0x21, *range(0x23, 0x5C), *range(0x5D, 0x7F))))
"""RFC 6749 §3.3, scope-token."""


class UpstreamResource(NamedTuple):
    """An upstream as its own metadata describes it: its name as a resource, its authorization servers, its scopes."""

    resource: str
    servers: tuple[str, ...]
    scopes: tuple[str, ...] = ()


class Challenge:
    """The parts of a WWW-Authenticate that tell where and for what people sign in; ``value`` is a stranger's."""

    def __init__(self, value: str | None) -> None:
        found = dict(_PARAMETER.findall((value or "")[:8192]))
        self.metadata: str | None = found.get("resource_metadata")
        self.scopes = scope_tokens(tuple(found.get("scope", "").split()))


# --- addresses --------------------------------------------------------------------------------------------------


def is_usable_url(url: str, near: str) -> bool:
    """Tell whether a URL that the server at ``near`` has named may be asked, or opened by a person.

    It is https, without credentials and fragment, and not the address of this machine or a private network in any
    spelling. A host that is ``near``'s own may be asked as ``near`` is, and a server on this machine may name others
    there.
    """
    parts, known = read_url(url), split_url(near)
    if parts is None or known is None or parts.scheme not in ("http", "https"):
        return False
    host = parts.hostname or ""
    if host == known.hostname or (is_loopback_host(host) and is_loopback_host(known.hostname)):
        return parts.scheme in ("https", known.scheme)
    return parts.scheme == "https" and not is_loopback_host(host) and not is_inner_host(host)


def resource_metadata_urls(url: str, *told: str) -> tuple[str, ...]:
    """The well-known places of the metadata of the resource at ``url``: for its path, then for its host.

    Between them are those for the paths of ``told``, addresses that its server may have been told to be reached at.
    All places are on the host of ``url``.
    """
    parts = urlsplit(url)
    known = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
    paths = *(each.path.rstrip("/") for each in (parts, *map(urlsplit, told))), ""
    # A resource may be a URN, whose path begins with no slash.
    return tuple(dict.fromkeys(f"{known}{path}" for path in paths if path[:1] in ("/", "")))


def same_origin(one: str, other: str) -> bool:
    """Tell whether two URLs have the same scheme, host and port."""
    return origin_of(one) == origin_of(other)


def covers(resource: str, url: str) -> bool:
    """Tell whether ``resource`` names the endpoint at ``url``: the same URL, or one above it on the same host."""
    try:
        named, asked = urlsplit(resource), urlsplit(url)
        if not same_origin(resource, url) or named.query or named.fragment:
            return False
    except ValueError:
        return False
    prefix, path = named.path.rstrip("/"), asked.path.rstrip("/")
    return path == prefix or path.startswith(f"{prefix}/")


# --- metadata of issuers ------------------------------------------------------------------------------------------


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


class ServerMetadata(NamedTuple):
    """The document of an authorization server about itself; of its members only those that are asked for are looked at.

    ``near``: see ``is_usable_url``; None where the settings, and no document, name the URLs.
    """

    issuer: str
    members: Mapping[str, Any]
    near: str | None

    def url(self, name: str) -> str:
        """The URL in a member, such as ``jwks_uri`` or ``token_endpoint``. Raises ValueError for one that is missing
        or must not be asked.
        """
        value = self.members.get(name)
        if not isinstance(value, str):
            raise ValueError(f"the issuer's metadata has no {name}")
        if self.near is not None and not is_usable_url(value, self.near):
            raise ValueError(f"the {name} of the issuer's metadata is not a usable URL")
        return value

    def url_if_any(self, name: str) -> str | None:
        """The URL in a member, None for one that is missing or must not be asked."""
        try:
            return self.url(name)
        except ValueError:
            return None

    def names(self, member: str) -> tuple[str, ...]:
        """The texts in a member that is a list, as many as are looked at."""
        return _names(self.members, member)

    def says(self, member: str) -> bool:
        """Tell whether a member is true."""
        return self.members.get(member) is True


def read_metadata(document: bytes, issuer: str, near: str | None = None) -> ServerMetadata:
    """Read the metadata of ``issuer``. Raises ValueError, also for that of any other.

    Otherwise one server could have another one's keys or codes (RFC 8414 §3.3 and §6.2, mix-up). ``near``: who named
    the issuer, where that is a document and not the settings; a slash at the end may differ then, as it does in many
    of them.
    """
    members = read_object(document)
    named = members.get("issuer")
    if named != issuer and not (near and isinstance(named, str) and named.rstrip("/") == issuer.rstrip("/")):
        must = "" if near else "; the setting must be equal to it to the last character"
        raise ValueError(f"the metadata names another issuer{must}")
    return ServerMetadata(named, members, near or issuer)


# --- documents --------------------------------------------------------------------------------------------------


def require_code_grant(metadata: ServerMetadata) -> None:
    """Raise ValueError, with a sentence that quotes nothing of the metadata, where no code can be asked for.

    A server that does not say that it offers PKCE with S256 is refused: MCP 2025-11-25, "Authorization Code
    Protection".
    """
    _require_pkce(metadata)
    responses = metadata.names("response_types_supported")
    if responses and "code" not in responses:
        raise ValueError("the authorization server does not offer the authorization code grant")
    metadata.url("authorization_endpoint")
    metadata.url("token_endpoint")


def _require_pkce(metadata: ServerMetadata) -> None:
    if metadata.members.get("code_challenge_methods_supported") is None:
        # OpenID Connect Discovery does not define the member, and servers that offer PKCE leave it out. Only a person
        # can know that theirs does.
        raise ValueError(
            "the metadata of the authorization server does not say whether it offers PKCE: it has no "
            "code_challenge_methods_supported. If it does offer S256, set issuer, authorization_endpoint, "
            "token_endpoint and client_id in servers[].upstream.auth, and the metadata is not asked"
        )
    if "S256" not in metadata.names("code_challenge_methods_supported"):
        raise ValueError("the authorization server does not offer PKCE with S256")


def read_resource_metadata(document: bytes, url: str, *told: str) -> UpstreamResource:
    """The metadata of the resource at ``url``, which may name one of ``told`` as well (``resource_metadata_urls``).

    Raises ValueError as ``require_code_grant``.
    """
    try:
        found = read_object(document)
    except ValueError as error:
        raise ValueError(f"the metadata cannot be read: {error}") from None
    resource = found.get("resource")
    if not isinstance(resource, str) or len(resource) > LONGEST_URL:
        raise ValueError("the metadata of the upstream server names no resource")
    if not any(covers(resource, each) for each in (url, *told)):
        raise ValueError(
            "the metadata of the upstream server names another resource than its URL: "
            "if that is its public address, set it in servers[].upstream.auth.resource"
        )
    servers = tuple(
        each
        for each in _names(found, "authorization_servers")
        if is_usable_url(each, url) and not urlsplit(each).query
    )
    if not servers:
        raise ValueError("the metadata of the upstream server names no usable authorization server")
    return UpstreamResource(resource, servers, scope_tokens(_names(found, "scopes_supported")))


def scope_tokens(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that may stand in a ``scope`` parameter, each once, in order."""
    fitting = (
        each for each in names if 0 < len(each) <= LONGEST_SCOPE and _SCOPE_CHARACTERS.issuperset(each)
    )
    return tuple(dict.fromkeys(fitting))[:MOST_NAMES]


def _names(found: Mapping[str, Any], member: str) -> tuple[str, ...]:
    listed = found.get(member)
    if not isinstance(listed, list):
        return ()
    return tuple(each for each in listed[:MOST_NAMES] if isinstance(each, str) and len(each) <= LONGEST_URL)
