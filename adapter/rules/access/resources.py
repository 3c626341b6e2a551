"""The protected resources of the adapter (RFC 9728), and the access tokens that are for each of them (RFC 8707)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import orjson

from adapter.rules.access.authorization_servers import read_resource_metadata
from adapter.rules.access.token_claims import VerifiedToken

WELL_KNOWN = "/.well-known/oauth-protected-resource"

ANY, CONSOLE = "*", "-"
"""The names of two resources that are no server's: whatever belongs to all of them, and the console."""

LONGEST_SENTENCE = 200
"""Characters of a description that a challenge carries."""

_URL = re.compile(
    r"(https?)://(\[[0-9a-f:.]+\]|[^\s/?#@:\\\[\]]+)(?::([0-9]{0,5}))?(/[^\s?#\\]*)?(\?[^\s#\\]*)?",
    re.I | re.A,
)
_WEB_PORTS = {"http": "80", "https": "443"}
_ENCODED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
_NOT_QUOTABLE = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")
_IN_A_PATH = "/:@!$&'()*+,;=-._~"


class ProtectedResource(NamedTuple):
    """``url`` identifies the resource. A token is for it whose audience is one of ``audiences``, in canonical form.

    ``metadata_url`` is where its metadata is found, ``scopes`` are those that a token needs.
    """

    name: str
    url: str
    metadata_url: str
    scopes: tuple[str, ...]
    audiences: frozenset[str]

    def metadata(self, issuers: Iterable[str], documentation: str | None = None) -> dict[str, Any]:
        """The metadata document (RFC 9728 §2). ``issuers`` are the authorization servers whose tokens are accepted."""
        document: dict[str, Any] = {
            "resource": self.url,
            "authorization_servers": list(issuers),
            "scopes_supported": list(self.scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": self.name,
        }
        if not self.scopes:
            del document["scopes_supported"]
        return document if documentation is None else {**document, "resource_documentation": documentation}


def resources_below(
    base: str, paths: Mapping[str, str], scopes: tuple[str, ...]
) -> dict[str, ProtectedResource]:
    """The resources by name, each at its path below the public URL ``base``; and ANY, for which each token is that is
    for one of them.
    """
    found = {name: _resource(base, name, path, scopes) for name, path in paths.items()}
    audiences = frozenset[str]().union(*(each.audiences for each in found.values()))
    return {**found, ANY: _resource(base, ANY, "", scopes)._replace(audiences=audiences)}


def _resource(base: str, name: str, path: str, scopes: tuple[str, ...]) -> ProtectedResource:
    parts = urlsplit(base)
    below = quote(parts.path.rstrip("/"), safe=_IN_A_PATH + "%") + quote(path, safe=_IN_A_PATH)
    origin = f"{parts.scheme}://{parts.netloc}"
    url = origin + below
    shown = "the console" if name == CONSOLE else name
    # RFC 9728 §3.1: the well-known part stands between the host and the path.
    return ProtectedResource(shown, url, f"{origin}{WELL_KNOWN}{below}", scopes, frozenset({canonical(url)}))


def metadata_paths(base: str, resources: Mapping[str, ProtectedResource]) -> dict[str, ProtectedResource]:
    """The decoded paths at which metadata is served, each with the resource that it describes.

    A proxy may take the path of ``base`` off, so each resource has a path with it and one without. The one server of
    an adapter is also described where no path follows, as clients look there last.
    """
    below = unquote(urlsplit(base).path.rstrip("/"))
    paths = {name: unquote(urlsplit(each.url).path) for name, each in resources.items() if name != ANY}
    servers = [resources[name] for name in paths if name != CONSOLE]
    found = {WELL_KNOWN: servers[0], WELL_KNOWN + below: servers[0]} if len(servers) == 1 else {}
    found |= {WELL_KNOWN + path.removeprefix(below): resources[name] for name, path in paths.items()}
    return found | {WELL_KNOWN + path: resources[name] for name, path in paths.items()}


def canonical(url: str) -> str:
    """One spelling of an http(s) URL (RFC 3986 §6.2.2 and §6.2.3), without slashes at the end of its path.

    Anything else, such as a URL with a user, a fragment or a backslash, is returned as it is. Dot segments stay.
    """
    found = _URL.fullmatch(url)
    if found is None:
        return url
    scheme, host, port, path, query = found.groups()
    scheme = scheme.lower()
    authority = host.lower() if port in (None, "", _WEB_PORTS[scheme]) else f"{host.lower()}:{port}"
    rest = _ENCODED.sub(_decoded, (path or "").rstrip("/") + (query or ""))
    return f"{scheme}://{authority}{rest}"


def _decoded(found: re.Match[str]) -> str:
    character = chr(int(found[1], 16))
    return character if _UNRESERVED.fullmatch(character) else found[0].upper()


Refusal = Literal["audience", "scope"]
"""What a verified token lacks: it is for another resource, or has too few scopes."""


def refusal_of(token: VerifiedToken, resource: ProtectedResource) -> Refusal | None:
    """The reason why the token does not open this resource; None if it does."""
    if token.audience is not None:
        meant = token.audience in token.audiences
    else:
        meant = any(canonical(audience) in resource.audiences for audience in token.audiences)
    if not meant:
        return "audience"
    return None if token.scopes.issuperset(token.required_scopes) else "scope"


def challenge(
    resource: ProtectedResource,
    scopes: Iterable[str],
    error: Literal["invalid_token", "insufficient_scope"] | None = None,
    description: str | None = None,
) -> str:
    """The value of WWW-Authenticate that tells a client how to get a token (RFC 6750 §3, RFC 9728 §5.1).

    ``scopes`` are those that are needed. Nothing in it can end its quoted string.
    """
    said = {"resource_metadata": resource.metadata_url, "scope": " ".join(scopes)}
    said |= {"error": error or "", "error_description": (description or "")[:LONGEST_SENTENCE]}
    return "Bearer " + ", ".join(f'{name}="{_quotable(value)}"' for name, value in said.items() if value)


def _quotable(text: str) -> str:
    return _NOT_QUOTABLE.sub("'", text)


# --- metadata of an upstream as that of the adapter's mount ----------------------------------------------------


_PASSED = (
    *("authorization_servers", "scopes_supported", "bearer_methods_supported", "resource_name"),
    *("resource_documentation", "resource_policy_uri", "resource_tos_uri"),
    *("authorization_details_types_supported", "tls_client_certificate_bound_access_tokens"),
    *("dpop_signing_alg_values_supported", "dpop_bound_access_tokens_required"),
)
"""Members that stay true of the mount. ``signed_metadata`` and keys speak of the upstream's own URL."""

_METADATA = re.compile(r'\bresource_metadata\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s,"]+)')
_BEARER = re.compile(r"(?:^|,)\s*Bearer(?=$|[\s,])", re.IGNORECASE)


def republished(document: bytes, url: str, resource: str, *told: str) -> bytes:
    """The metadata of the upstream at ``url`` as that of ``resource``; it may name that, or one of ``told``, itself.

    Raises ValueError, with a sentence, for what is not the metadata of this upstream, or names no usable authorization
    server.
    """
    upstream = read_resource_metadata(document, url, resource, *told)
    found: dict[str, Any] = orjson.loads(document)
    passed = {name: found[name] for name in _PASSED if name in found}
    return orjson.dumps({"resource": resource, **passed, "authorization_servers": list(upstream.servers)})


def renamed(challenge: str | None, metadata_url: str) -> str:
    """The challenge of an upstream's 401 or 403 with the metadata of the mount in place of the upstream's."""
    if challenge is None:
        return f'Bearer resource_metadata="{metadata_url}"'
    member = f'resource_metadata="{metadata_url}"'
    if _METADATA.search(challenge):
        return _METADATA.sub(lambda _: member, challenge)
    found = _BEARER.search(challenge)
    if found is None:
        return f"{challenge}, Bearer {member}"
    rest = challenge[found.end() :].lstrip()
    joined = f"{member}, {rest}" if rest and not rest.startswith(",") else f"{member}{rest}"
    return f"{challenge[: found.end()]} {joined}"
