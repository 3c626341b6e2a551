"""Credentials for the requests to one upstream, by ``servers[].upstream.auth.type``.

Proofs of the adapter's that it is the client of an authorization server (RFC 6749 §2.3, RFC 7523).
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote_plus

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from adapter.errors import AdapterError, CredentialsMissing
from adapter.oauth.discovery import issuer_metadata
from adapter.oauth.obtained_tokens import ObtainedTokens
from adapter.pipeline.key_set import algorithms_of
from adapter.rules.access.grants import GrantRefused, OAuthClient, Tokens, read_tokens
from adapter.rules.access.principals import Caller, authorization_of, bearer, digest, name_of
from adapter.settings.servers.upstream_auth import UpstreamAuth
from adapter.upstream.outgoing import IssuerHttp, token_http

ASSERTION_LIFE = 60
"""Seconds for which an assertion is valid."""

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey | Ed448PrivateKey


class Proof(NamedTuple):
    """Header fields and form fields of one request to a token endpoint."""

    fields: dict[str, str]
    form: dict[str, str]


ClientProof = Callable[[str], Proof]
"""Makes the proof for a request to the token endpoint at this URL."""


def basic_proof(client_id: str, secret: str) -> ClientProof:
    """Prove by HTTP Basic authentication."""
    # RFC 6749 §2.3.1: both are form-encoded before they are joined.
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    fields = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return lambda _: Proof(fields, {})


def post_proof(client_id: str, secret: str) -> ClientProof:
    """Prove by the secret in the form."""
    return lambda _: Proof({}, {"client_id": client_id, "client_secret": secret})


def proof_of(client: OAuthClient) -> ClientProof:
    """The proof that the adapter is ``client``; a public client only says so."""
    if client.secret is None:
        return lambda _: Proof({}, {"client_id": client.id})
    make = basic_proof if client.method == "client_secret_basic" else post_proof
    return make(client.id, client.secret)


@dataclass(eq=False)
class SignedProof:
    """Proves by assertions that ``key`` signs. ``clock`` gives Unix time in seconds.

    ``audience`` is that of the assertions, None means the token endpoint.
    """

    client_id: str
    key: PrivateKey
    clock: Callable[[], float]
    key_id: str | None = field(default=None, kw_only=True)
    audience: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._algorithm = algorithm_of(self.key)
        self._headers = None if self.key_id is None else {"kid": self.key_id}

    def __repr__(self) -> str:
        return f"<SignedProof of {self.client_id!r} by {self._algorithm}>"

    def __call__(self, endpoint: str) -> Proof:
        """See ClientProof."""
        now = int(self.clock())
        claims = {
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": self.audience or endpoint,
            "jti": secrets.token_urlsafe(24),
            "iat": now,
            "exp": now + ASSERTION_LIFE,
        }
        assertion = jwt.encode(claims, self.key, self._algorithm, self._headers)
        form = {
            "client_id": self.client_id,
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": assertion,
        }
        return Proof({}, form)


def private_key(pem: bytes) -> PrivateKey:
    """The key in a PEM file. Raises ValueError with a sentence that holds nothing of it."""
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnicodeDecodeError) as error:
        needs = "is encrypted" if isinstance(error, TypeError) else "holds no private key in PEM"
        raise ValueError(f"the file {needs}") from None
    if not isinstance(key, PrivateKey):
        raise ValueError("the key is neither RSA nor of an elliptic curve that signs")
    try:
        algorithm_of(key)
    except ValueError as error:
        raise ValueError(f"the key {error}") from None
    return key


def algorithm_of(key: PrivateKey) -> str:
    """The algorithm (RFC 7518 §3.1) by which a key signs. Raises ValueError for one that JWTs cannot be signed with."""
    algorithms = algorithms_of(key.public_key())
    return "RS256" if "RS256" in algorithms else min(algorithms)


# --- requests of a client for tokens, and to revoke them -------------------------------------------------------


async def post_form(
    http: IssuerHttp, endpoint: str, prove: ClientProof, form: Mapping[str, str]
) -> tuple[int, bytes]:
    """Status and body of the answer to a form of the client that ``prove`` is about. Raises what ``http`` raises."""
    proof = prove(endpoint)
    return await http.form(endpoint, {**form, **proof.form}, proof.fields)


async def request_tokens(
    http: IssuerHttp, endpoint: str, prove: ClientProof, form: Mapping[str, str]
) -> Tokens:
    """Ask for tokens. Raises GrantRefused, ValueError, and what ``http`` raises."""
    return read_tokens(*await post_form(http, endpoint, prove, form))


async def request_revocation(http: IssuerHttp, endpoint: str, prove: ClientProof, token: str) -> bool:
    """Revoke a refresh token or an access token (RFC 7009). False: the server refused. Raises what ``http`` raises."""
    status, _ = await post_form(http, endpoint, prove, {"token": token})
    return status == 200


TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 (a grant type of RFC 8693)

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 (a type of RFC 8693, no token)

_SCHEME = "Bearer "


class PassedCredentials:
    """The callers' own Authorization fields (``passthrough``), whatever they hold."""

    async def authorization(self, caller: Caller) -> str | None:
        """See UpstreamCredentials."""
        return authorization_of(caller)

    async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:  # noqa: ARG002 (the port's)
        """See UpstreamCredentials. Only the caller can bring another one."""
        return False


class ObtainedCredentials:
    """Tokens that the adapter asks for: its own (``client_credentials``, RFC 6749 §4.4), the same for all callers and
    for nobody, or those for which the callers' own are exchanged (``token_exchange``, RFC 8693), each principal's, for
    each token of its.

    For an exchange a caller counts only with the access token that let it in: a field that was not its credential may
    hold anybody's.
    """

    def __init__(self, server: str, auth: UpstreamAuth, prove: ClientProof, tokens: ObtainedTokens) -> None:
        self._server = server
        self._auth = auth
        self._prove = prove
        self._tokens = tokens
        self._http = token_http()
        self._metadata = None if auth.issuer is None else issuer_metadata(IssuerHttp(), auth.issuer)
        self._exchanges = auth.type == "token_exchange"
        form = {
            "grant_type": TOKEN_EXCHANGE if self._exchanges else "client_credentials",
            "scope": " ".join(auth.scopes),
            "resource": auth.resource,
            "audience": auth.audience,
        }
        if self._exchanges:
            form["subject_token_type"] = ACCESS_TOKEN
        self._form = {name: value for name, value in form.items() if value}

    async def authorization(self, caller: Caller) -> str | None:
        """See UpstreamCredentials."""
        if not self._exchanges:
            return _SCHEME + await self._tokens.get("", lambda: self._request(self._form))
        subject = subject_token(caller)
        if subject is None:
            if not caller.fields:
                return None
            raise CredentialsMissing(
                f"The server {self._server} is called with a token that yours is exchanged for, and you "
                f"({name_of(caller.principal)}) have no OAuth access token. Sign in with one."
            )
        form = {**self._form, "subject_token": subject}
        return _SCHEME + await self._tokens.get(_key(caller, subject), lambda: self._request(form))

    async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:  # noqa: ARG002 (the port's)
        """See UpstreamCredentials."""
        subject = subject_token(caller) if self._exchanges else ""
        if value is None or subject is None:
            return not self._exchanges
        key = _key(caller, subject) if self._exchanges else ""
        return self._tokens.refused(key, value.removeprefix(_SCHEME))

    async def close(self) -> None:
        """Give up requests for tokens that are on the way."""
        await self._tokens.close()

    async def _request(self, form: Mapping[str, str]) -> Tokens:
        """Ask for a token. Raises CredentialsMissing with a sentence that names server and setting.

        Of the endpoint's answer the sentence has nothing but the error code.
        """
        try:
            return await request_tokens(self._http, await self._endpoint(), self._prove, form)
        except GrantRefused as refused:
            raise self._missing(f"it answered {refused.code}") from None
        except (AdapterError, ValueError) as error:
            raise self._missing(str(error)) from error

    async def _endpoint(self) -> str:
        if self._auth.token_endpoint is not None:
            return self._auth.token_endpoint
        assert self._metadata is not None, "settings refuse a section with neither"
        return (await self._metadata.get()).url("token_endpoint")

    def _missing(self, why: str) -> CredentialsMissing:
        return CredentialsMissing(
            f"The adapter got no token for the upstream server {self._server} from its authorization server: "
            f"{why.rstrip('.')}. See servers[].upstream.auth of {self._server}."
        )


def subject_token(caller: Caller) -> str | None:
    """The OAuth access token that let a caller in; None for one that came in by anything else."""
    if not caller.claims or "authorization" not in caller.withheld:
        return None
    return bearer(authorization_of(caller))


def _key(caller: Caller, subject: str) -> str:
    return digest(f"{len(caller.principal)}:{caller.principal}{subject}")
