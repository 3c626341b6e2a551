"""Answers of token endpoints (RFC 6749 §5), and the token endpoint in an issuer's metadata (RFC 8414). All is hostile."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

LONGEST_TOKEN = 16 << 10
"""Characters of an access token."""

LONGEST_LIFE = 366 * 24 * 3600.0
"""Seconds for which a token is believed to be good."""

_TOKEN = re.compile(r"[\x21-\x7e]+")
_ERROR = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
_LOOPBACK = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}|::1")


class IssuedToken(NamedTuple):
    """``life`` in seconds, None where the answer tells none."""

    value: str
    life: float | None


class TokenDenied(Exception):
    """A token endpoint gave no token. ``str()`` is its error code, or a few words, without anything else of it."""


def read_issued_token(status: int, body: bytes) -> IssuedToken:
    """The token in an answer. Raises TokenDenied."""
    answer = _object(body)
    if status != 200:
        error = answer.get("error")
        if isinstance(error, str) and _ERROR.fullmatch(error):
            raise TokenDenied(error)
        raise TokenDenied(f"HTTP status {status}")
    token, kind = answer.get("access_token"), answer.get("token_type", "Bearer")
    if not isinstance(token, str) or len(token) > LONGEST_TOKEN or _TOKEN.fullmatch(token) is None:
        raise TokenDenied("no usable access_token")
    # N_A is the type of what is no access token (RFC 8693 §2.2.1), DPoP that of one which is bound to a key.
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise TokenDenied("a token_type that is not Bearer")
    return IssuedToken(token, _life(answer.get("expires_in")))


def _life(seconds: object) -> float | None:
    # Some servers send the number as text.
    if isinstance(seconds, str) and re.fullmatch(r"[0-9]{1,12}", seconds):
        seconds = int(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return min(max(float(seconds), 0.0), LONGEST_LIFE)


def issuer_metadata_urls(issuer: str) -> list[str]:
    """The URLs at which an issuer may publish its metadata, the one of RFC 8414 §3.1 first.

    The others are those of OpenID Connect Discovery, and of RFC 8414 for OpenID providers.
    """
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}{path}/.well-known/openid-configuration",
        f"{origin}/.well-known/openid-configuration{path}",
    ]
    return list(dict.fromkeys(urls))


def token_endpoint_in(body: bytes, issuer: str) -> str:
    """The token endpoint that an issuer's metadata name. Raises TokenDenied.

    The metadata must be the issuer's own (RFC 8414 §3.3), so that no other server gets the adapter's secret.
    """
    metadata = _object(body)
    if metadata.get("issuer") != issuer:
        raise TokenDenied("metadata of another issuer")
    endpoint = metadata.get("token_endpoint")
    if not isinstance(endpoint, str) or not is_secure(endpoint):
        raise TokenDenied("no usable token_endpoint in its metadata")
    return endpoint


def is_secure(url: str) -> bool:
    """Tell whether secrets may be sent to this URL: https, or http to this machine, without user and fragment."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if (
        len(url) > 2048
        or not url.isprintable()
        or " " in url
        or not host
        or "@" in parts.netloc
        or parts.fragment
    ):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _LOOPBACK.fullmatch(host) is not None)


def _object(body: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}
