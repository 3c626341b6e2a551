"""The token endpoint in an issuer's metadata (RFC 8414). Every document is a stranger's: who fetched it bounded it."""

from __future__ import annotations

from urllib.parse import urlsplit

import orjson

from adapter.rules.access.authorization_servers import LONGEST_URL, is_loopback_host


def token_endpoint_in(document: bytes, issuer: str) -> str:
    """The token endpoint that an issuer's metadata name. Raises ValueError, with a sentence that quotes nothing.

    The metadata must be the issuer's own (RFC 8414 §3.3), so that no other server gets the adapter's secret.
    """
    try:
        metadata = orjson.loads(document)
    except orjson.JSONDecodeError:
        raise ValueError("the metadata is not JSON") from None
    if not isinstance(metadata, dict) or metadata.get("issuer") != issuer:
        raise ValueError("the metadata of the authorization server names another issuer")
    endpoint = metadata.get("token_endpoint")
    if not isinstance(endpoint, str) or not takes_secrets(endpoint):
        raise ValueError("the metadata of the authorization server has no usable token_endpoint")
    return endpoint


def takes_secrets(url: str) -> bool:
    """Tell whether secrets may be sent to this URL: https, or http to this machine, without user and fragment."""
    if len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or "@" in parts.netloc or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(host))
