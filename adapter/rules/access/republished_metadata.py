"""An upstream's protected-resource metadata as that of the adapter's mount (RFC 9728), and challenges that name it.

A client that reads the metadata signs in at the upstream's authorization server, for the URL of the mount: it is what
it called. That works where the server issues tokens for that URL, or tokens without an audience.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from adapter.rules.access.authorization_servers import read_resource_metadata

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
