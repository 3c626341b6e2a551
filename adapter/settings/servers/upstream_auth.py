"""``servers[].upstream.auth``: credentials for the requests to an upstream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from adapter.settings.auth import Scopes, SecureUrl
from adapter.settings.section import BlankIsNull, OptionalText, Problem, Section

AuthType = Literal[
    "none", "static", "passthrough", "client_credentials", "token_exchange", "authorization_code"
]

_CLIENT = (
    *("issuer", "token_endpoint", "client_id", "client_secret", "client_authentication"),
    *("private_key_file", "private_key_id", "scopes", "resource", "audience"),
)
KEYS: dict[AuthType, tuple[str, ...]] = {
    "none": (),
    "static": (),
    "passthrough": ("metadata", "resource"),
    "client_credentials": _CLIENT,
    "token_exchange": _CLIENT,
    "authorization_code": (
        *("issuer", "authorization_endpoint", "token_endpoint"),
        *("client_id", "client_secret", "client_authentication", "scopes", "resource"),
    ),
}
"""The keys that count for each type, beside ``type``."""

PER_CALLER: frozenset[AuthType] = frozenset({"passthrough", "token_exchange", "authorization_code"})
"""Types with which each caller has a credential of its own, so that a server may show each of them other tools."""


class UpstreamAuth(Section):
    """Credentials for the requests to the upstream; `docs/upstream-auth.md` compares the types."""

    type: AuthType = "none"
    """Origin of the credentials: `static_headers` (`none`, `static`), the caller's token (`passthrough`), the
    adapter's (`client_credentials`), one exchanged for the caller's (`token_exchange`), or one that the caller
    authorizes (`authorization_code`).
    """
    metadata: bool = False
    """For `passthrough`: publish the upstream's protected-resource metadata as that of the mount."""
    issuer: Annotated[SecureUrl | None, BlankIsNull] = None
    """Authorization server; its metadata (RFC 8414 or OpenID Connect Discovery) name the token endpoint."""
    token_endpoint: Annotated[SecureUrl | None, BlankIsNull] = None
    """URL that issues tokens; null finds it by `issuer`."""
    authorization_endpoint: Annotated[SecureUrl | None, BlankIsNull] = None
    """For `authorization_code`: URL at which people sign in; null: from the metadata."""
    client_id: OptionalText = None
    """Client id of the adapter; for `authorization_code` null uses a client id metadata document or dynamic
    registration.
    """
    client_secret: Annotated[SecretStr | None, BlankIsNull] = None
    """Client secret; write `${VAR}` instead of the secret."""
    client_authentication: Literal["client_secret_basic", "client_secret_post", "private_key_jwt"] | None = (
        None
    )
    """Proof of being the client; null: `private_key_jwt` with a `private_key_file`, else `client_secret_basic`."""
    private_key_file: Annotated[Path | None, BlankIsNull] = None
    """PEM file with the private key for `private_key_jwt` (RFC 7523), relative to the settings file. Assertions are for
    the token endpoint, or for `issuer` where both are set.
    """
    private_key_id: OptionalText = None
    """Key id (`kid`) under which the authorization server knows the public key."""
    scopes: Scopes = Field(default_factory=list)
    """Scopes to ask for."""
    resource: OptionalText = None
    """Resource to ask a token for (RFC 8707), usually the URL of the upstream; null sends none."""
    audience: OptionalText = None
    """Audience to ask a token for (RFC 8693); null sends none."""

    @property
    def per_caller(self) -> bool:
        """Tell whether each caller has a credential of its own."""
        return self.type in PER_CALLER

    @property
    def method(self) -> str:
        """The way in which the adapter authenticates as a client."""
        if self.client_authentication is not None:
            return self.client_authentication
        return "private_key_jwt" if self.private_key_file is not None else "client_secret_basic"


def auth_problems(
    auth: UpstreamAuth, headless: str | None, static: Iterable[str], passed: Iterable[str], path: str
) -> Iterator[Problem]:
    """Contradictions in the section of one server. ``static`` and ``passed`` are names of header fields; ``headless``
    is the transport if its requests have no headers.
    """
    for key, value in auth.said.items():
        usual = UpstreamAuth.model_fields[key].get_default(call_default_factory=True)
        # A default that stands there does no harm.
        if key != "type" and key not in KEYS[auth.type] and value != usual:
            users = " and ".join(name for name, keys in KEYS.items() if key in keys)
            yield Problem(f"{path}.{key}", f"is only for type {users}: remove it, or change type")
    if auth.type == "none":
        return
    if headless is not None:
        sentence = f"is not for the transport {headless}, whose requests have no HTTP headers: remove it"
        yield Problem(f"{path}.type", sentence)
        return
    if auth.type == "static":
        if not list(static):
            yield Problem(f"{path}.type", "static needs upstream.static_headers, which are not set")
        return
    yield from _other_authorization(auth, static, passed, path)
    if auth.type == "passthrough" and auth.resource is not None and not auth.metadata:
        yield Problem(f"{path}.resource", "needs metadata: true for type passthrough: set that, or remove it")
    if auth.type == "authorization_code":
        yield from _grant_problems(auth, path)
    elif auth.type != "passthrough":
        yield from _client_problems(auth, path)


def _other_authorization(
    auth: UpstreamAuth, static: Iterable[str], passed: Iterable[str], path: str
) -> Iterator[Problem]:
    place = path.rpartition(".")[0]
    for key, names in (("static_headers", static), ("client_headers", passed)):
        if any(name.lower() == "authorization" for name in names):
            sentence = f"contains Authorization, which auth.type {auth.type} sets: remove one of them"
            yield Problem(f"{place}.{key}", sentence)


def _client_problems(auth: UpstreamAuth, path: str) -> Iterator[Problem]:
    if auth.token_endpoint is None and auth.issuer is None:
        yield Problem(
            f"{path}.token_endpoint", f"or issuer is required for type {auth.type}, to ask for tokens"
        )
    if auth.client_id is None:
        yield Problem(f"{path}.client_id", f"is required for type {auth.type}")
    needs, other = ("private_key_file", "client_secret")
    if auth.method != "private_key_jwt":
        needs, other = other, needs
    if getattr(auth, needs) is None:
        yield Problem(f"{path}.{needs}", f"is required for client_authentication {auth.method}")
    for key in (other, "private_key_id"):
        if getattr(auth, key) is not None and (key == other or auth.method != "private_key_jwt"):
            yield Problem(f"{path}.{key}", f"is not for client_authentication {auth.method}: remove it")


def _grant_problems(auth: UpstreamAuth, path: str) -> Iterator[Problem]:
    if (auth.authorization_endpoint is None) != (auth.token_endpoint is None):
        missing = "token_endpoint" if auth.token_endpoint is None else "authorization_endpoint"
        yield Problem(f"{path}.{missing}", "is required where the other endpoint is set: set both, or none")
    if auth.client_id is None and auth.token_endpoint is not None:
        yield Problem(f"{path}.client_id", "is required where the endpoints are set")
    if auth.client_id is None and auth.client_secret is not None:
        yield Problem(f"{path}.client_secret", "needs client_id")
    if auth.client_authentication is not None and auth.client_secret is None:
        yield Problem(f"{path}.client_authentication", "needs client_secret")
    if auth.client_authentication == "private_key_jwt":
        yield Problem(f"{path}.client_authentication", "private_key_jwt is not for type authorization_code")
