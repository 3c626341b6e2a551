"""Grants of people for upstreams: the requests by which they are obtained, and the answers to those. Pure.

Source of the rules: OAuth 2.1, RFC 7636 (PKCE), RFC 8707 (``resource``), RFC 9207 (``iss``), RFC 7591 (registration).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import urlencode, urlsplit

import orjson
from pydantic import SecretStr

LONGEST_TOKEN = 16 << 10
"""Characters of a token: longer ones fit into no header field."""

LONGEST_LIFE = 10 * 365 * 86400.0
"""Seconds; a longer ``expires_in`` counts as this."""

LEAST_LEFT = 30.0
"""Seconds before its end at which a token is renewed, or a tenth of its life if that is less."""


class Grant(NamedTuple):
    """Tokens that one principal has obtained for one server. Times are in Unix seconds.

    ``issuer`` and ``token_endpoint`` are where it came from, and the only places that its refresh token goes to;
    ``client`` is the client id it was issued to. ``expires`` None: the server did not say.
    """

    principal: str
    issuer: str
    token_endpoint: str
    revocation_endpoint: str | None
    client: str
    access: str
    refresh: str | None
    scope: str
    resource: str
    obtained: float
    renewed: float
    expires: float | None

    def __repr__(self) -> str:
        # Without its tokens, wherever it may be shown.
        return f"<Grant of {self.issuer!r}>"

    def due(self, now: float) -> bool:
        """Tell whether its access token should be renewed now."""
        if self.expires is None:
            return False
        return now >= self.expires - min(LEAST_LEFT, (self.expires - self.renewed) / 10)

    def over(self, now: float) -> bool:
        """Tell whether its access token has expired."""
        return self.expires is not None and now >= self.expires


class Tokens(NamedTuple):
    """A successful token answer. ``life`` is in seconds, None where the server does not say; ``scope`` likewise."""

    access: str
    refresh: str | None
    life: float | None
    scope: str | None

    def __repr__(self) -> str:
        return f"<Tokens for {self.life} s>"


class GrantRefused(Exception):
    """A token endpoint refused a request. ``code`` is its ``error`` (RFC 6749 §5.2), bounded, or its status."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def encode_grant(grant: Grant) -> bytes:
    """The grant as JSON."""
    return orjson.dumps(grant._asdict())


def decode_grant(data: bytes) -> Grant | None:
    """The grant that ``encode_grant`` wrote; None for anything else."""
    try:
        return Grant(**orjson.loads(data))
    except (TypeError, orjson.JSONDecodeError):
        return None


# --- token endpoint ---------------------------------------------------------------------------------------------


def read_tokens(status: int, body: bytes) -> Tokens:
    """The tokens of an answer. Raises GrantRefused for a refusal, ValueError for what is no answer of OAuth."""
    found = _read(body)
    if status != 200:
        raise GrantRefused(_error_code(found, status))
    if not isinstance(found, dict):
        raise ValueError("the token answer is not a JSON object")
    if str(found.get("token_type", "")).lower() != "bearer":
        raise ValueError("the token answer is of another type than Bearer")
    access, refresh, life = found.get("access_token"), found.get("refresh_token"), found.get("expires_in")
    if not is_token(access) or not (refresh is None or is_token(refresh)):
        raise ValueError("the token answer has no usable token")
    scope = found.get("scope")
    return Tokens(access, refresh, _life(life), scope[:4096] if isinstance(scope, str) else None)


def _read(body: bytes) -> Any:
    """The JSON of an answer, None where it is none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def is_token(value: object) -> TypeGuard[str]:
    """Tell whether a value can be sent as a token: visible ASCII of a bounded length."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= LONGEST_TOKEN
        and value.isascii()
        and value.isprintable()
        and " " not in value
    )


def _life(value: object) -> float | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return None
    return float(min(value, LONGEST_LIFE))


def _error_code(found: object, status: int) -> str:
    code = found.get("error") if isinstance(found, dict) else None
    if isinstance(code, str) and 0 < len(code) <= 64 and code.replace("_", "").isalnum() and code.isascii():
        return code
    return f"status {status}"


# --- the authorization request ----------------------------------------------------------------------------------


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a PKCE verifier."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def authorization_url(endpoint: str, parameters: Mapping[str, str]) -> str:
    """The URL that a browser is sent to, without empty parameters. Those of the endpoint's own query stay."""
    sent = {name: value for name, value in parameters.items() if value}
    return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(sent)}"


def code_request(
    client_id: str, redirect: str, state: str, verifier: str, scopes: Iterable[str], resource: str
) -> dict[str, str]:
    """The parameters of an authorization request with PKCE; ``resource`` is empty where none is named (RFC 8707)."""
    return {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect,
        "scope": " ".join(scopes),
        "state": state,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
        "resource": resource,
    }


def code_exchange(code: str, redirect: str, verifier: str, resource: str) -> dict[str, str]:
    """The form of a request for the tokens of a code."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect,
        "code_verifier": verifier,
    }
    return form | {"resource": resource} if resource else form


def issuer_agrees(given: str | None, issuer: str, *, required: bool) -> bool:
    """Tell whether an authorization response is that of ``issuer`` by its ``iss`` (RFC 9207 §2.4).

    ``required``: the server has said that its responses carry one.
    """
    if given is None:
        return not required
    return hmac.compare_digest(given.encode("utf-8", "replace"), issuer.encode())


# --- clients ----------------------------------------------------------------------------------------------------


class OAuthClient(NamedTuple):
    """A client id at one authorization server, with a secret unless the client is public. ``method``: how it is sent.

    ``expires`` is in Unix seconds, 0 for never, and concerns the secret.
    """

    id: str
    secret: str | None = None
    method: str = "none"
    expires: float = 0.0

    def __repr__(self) -> str:
        return f"<OAuthClient {self.id!r} by {self.method}>"


def configured_client(client_id: str, secret: SecretStr | None, method: str) -> OAuthClient:
    """The client of the settings, which is public without a secret."""
    return (
        OAuthClient(client_id)
        if secret is None
        else OAuthClient(client_id, secret.get_secret_value(), method)
    )


def client_metadata(name: str, redirect: str, *, loopback: bool) -> dict[str, Any]:
    """The members by which the adapter describes itself as a client (RFC 7591 §2)."""
    return {
        "client_name": name,
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native" if loopback else "web",
    }


def read_registration(status: int, body: bytes) -> OAuthClient:
    """The client of a registration answer. Raises GrantRefused, ValueError."""
    found = _read(body)
    if status not in (200, 201):
        raise GrantRefused(_error_code(found, status))
    if not isinstance(found, dict) or not _is_text(found.get("client_id")):
        raise ValueError("the registration answer has no client_id")
    secret = found.get("client_secret") or None
    if secret is not None and not _is_text(secret):
        raise ValueError("the registration answer has an unusable client_secret")
    method = found.get("token_endpoint_auth_method") or ("client_secret_basic" if secret else "none")
    if method not in ("none", "client_secret_basic", "client_secret_post") or (
        method != "none" and not secret
    ):
        raise ValueError(
            "the registration answer demands a way to authenticate that the adapter does not have"
        )
    expires = found.get("client_secret_expires_at")
    if secret is None or isinstance(expires, bool) or not isinstance(expires, int | float):
        expires = 0
    return OAuthClient(found["client_id"], secret, method, float(expires))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TOKEN and value.isprintable()
