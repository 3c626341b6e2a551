"""The credentials of upstreams, made of ``servers[].upstream.auth``. Imported where a server has any."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from adapter.oauth.client_authentication import (
    ClientProof,
    SignedProof,
    basic_proof,
    post_proof,
    private_key,
)
from adapter.oauth.grants.http import GrantHttp
from adapter.oauth.grants.port import DocumentHttp
from adapter.oauth.grants.sealing import SealedRows
from adapter.oauth.obtained_tokens import ObtainedTokens, SharedTokens
from adapter.oauth.token_endpoint import EndpointFinder, TokenEndpoint, TokenPurpose
from adapter.oauth.upstream_credentials import (
    ClientCredentials,
    ExchangedCredentials,
    PassedCredentials,
    SubjectTypes,
    TokenTerms,
)
from adapter.oauth.upstream_metadata import UpstreamMetadata
from adapter.relay.files.scopes import kept_secret
from adapter.relay.lease import Lease
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError
from adapter.settings.servers.server import ServerSettings
from adapter.settings.servers.upstream_auth import UpstreamAuth
from adapter.state.port import Store
from adapter.upstream.authorized import AuthorizedUpstream, challenged_by, passed_on, refusal_by
from adapter.upstream.port import Upstream

SECRET = "upstream_tokens"  # noqa: S105 (the name of a secret, not the secret)
"""The name of the secret in the store that seals tokens, where the settings have none."""

LEAD = 15.0
"""Seconds after which another replica asks for a token that one was about to ask for."""


class Surroundings(NamedTuple):
    """The settings and the store that the credentials of all servers are made with."""

    settings: Settings
    store: Store


def authorized(around: Surroundings, entry: ServerSettings, upstream: Upstream) -> Upstream:
    """The upstream with the credentials of this entry. Raises SettingsError for a key that cannot be used."""
    auth = entry.upstream.auth
    if auth.type == "passthrough":
        base = around.settings.core.public_base_url
        refusal = challenged_by(metadata_url(base, entry.mount_path)) if auth.metadata and base else passed_on
        return AuthorizedUpstream(upstream, PassedCredentials(), refusal)
    http = GrantHttp(None)
    endpoint = TokenEndpoint(
        _place(auth, http),
        proof_of(auth, around.settings.servers.index(entry)),
        http,
        TokenPurpose(entry.id, f"servers[].upstream.auth of {entry.id}"),
    )
    terms = TokenTerms(tuple(auth.scopes), auth.resource, auth.audience)
    credentials: ClientCredentials | ExchangedCredentials
    if auth.type == "client_credentials":
        tokens = ObtainedTokens(time.time, _shared(around, entry))
        credentials = ClientCredentials(endpoint, terms, tokens)
    else:
        types = SubjectTypes(auth.subject_token_type, auth.requested_token_type)
        credentials = ExchangedCredentials(endpoint, terms, types, ObtainedTokens(time.time), entry.id)
    return AuthorizedUpstream(upstream, credentials, refusal_by(entry.id), credentials.close)


def _place(auth: UpstreamAuth, http: DocumentHttp) -> str | EndpointFinder:
    if auth.token_endpoint is not None:
        return auth.token_endpoint
    assert auth.issuer is not None, "settings refuse a section with neither"
    return EndpointFinder(auth.issuer, http, time.monotonic)


def proof_of(auth: UpstreamAuth, index: int) -> ClientProof:
    """The adapter's proof to the authorization server. Raises SettingsError for a key that cannot be used."""
    assert auth.client_id is not None, "settings refuse a section without"
    if auth.method != "private_key_jwt":
        assert auth.client_secret is not None, "settings refuse a section without"
        make = basic_proof if auth.method == "client_secret_basic" else post_proof
        return make(auth.client_id, auth.client_secret.get_secret_value())
    assert auth.private_key_file is not None, "settings refuse a section without"
    try:
        key = private_key(auth.private_key_file.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        place = f"servers[{index}].upstream.auth.private_key_file"
        raise SettingsError([Problem(place, f"{auth.private_key_file} cannot be used: {why}")]) from None
    return SignedProof(
        auth.client_id, key, time.time, key_id=auth.private_key_id, audience=auth.assertion_audience
    )


def check_keys(settings: Settings) -> None:
    """Raise SettingsError for a private key that cannot be used."""
    for index, entry in enumerate(settings.servers):
        if entry.upstream.auth.private_key_file is not None:
            proof_of(entry.upstream.auth, index)


def _shared(around: Surroundings, entry: ServerSettings) -> SharedTokens | None:
    store = around.store
    if not store.shared:
        return None
    auth = entry.upstream.auth
    # A replica with other settings, as during an update, needs another token.
    secret = "" if auth.client_secret is None else auth.client_secret.get_secret_value()
    named = f"{auth.model_dump_json()}\n{secret}"
    name = f"{entry.id}:{hashlib.sha256(named.encode()).hexdigest()[:32]}"
    rows = SealedRows(store, partial(_secret, around.settings, store))
    return SharedTokens(rows, lambda lease: Lease(store, lease, LEAD), name)


async def _secret(settings: Settings, store: Store) -> bytes:
    configured = settings.core.auth.signing_secret or settings.core.auth.token
    if configured is None:
        return await kept_secret(store, SECRET)
    return hashlib.sha256(configured.get_secret_value().encode()).digest()


# --- metadata -----------------------------------------------------------------------------------------------------


def metadata_url(base: str, mount: str) -> str:
    """The URL of the metadata of a mount below the public URL ``base`` (RFC 9728 §3.1)."""
    scheme, _, rest = base.rstrip("/").partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}/.well-known/oauth-protected-resource{slash}{path}{mount}"


def republished_metadata(settings: Settings) -> Iterator[tuple[str, UpstreamMetadata]]:
    """The mounts that publish the metadata of their upstreams."""
    base = (settings.core.public_base_url or "").rstrip("/")
    for entry in settings.servers:
        upstream = entry.upstream
        if upstream.auth.metadata and upstream.url is not None:
            resource = f"{base}{entry.mount_path}"
            yield entry.id, UpstreamMetadata(upstream.url, resource, GrantHttp(None), time.monotonic)
