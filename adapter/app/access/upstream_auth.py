"""The credentials of upstreams, made of ``servers[].upstream.auth``. Imported where a server has any."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.app.access.grants import SECRET
from adapter.app.state import sealed_rows
from adapter.oauth.discovery import upstream_metadata
from adapter.oauth.obtained_tokens import ObtainedTokens, SharedTokens
from adapter.oauth.upstream_credentials import (
    ClientProof,
    ObtainedCredentials,
    PassedCredentials,
    SignedProof,
    private_key,
    proof_of,
)
from adapter.relay.cleanup import Lease
from adapter.rules.access.grants import configured_client
from adapter.rules.access.resources import ProtectedResource, metadata_paths, resources_below
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError
from adapter.settings.servers.server import ServerSettings
from adapter.settings.servers.upstream_auth import UpstreamAuth
from adapter.state.port import Store
from adapter.upstream.authorized import AuthorizedUpstream, Refusal, challenged_by, passed_on, refusal_by
from adapter.upstream.outgoing import token_http
from adapter.upstream.port import Upstream

LEAD = 15.0
"""Seconds after which another replica asks for a token that one was about to ask for."""


def authorized(
    settings: Settings, store: Store, log: FilteringBoundLogger, entry: ServerSettings, upstream: Upstream
) -> Upstream:
    """The upstream with the credentials of this entry. Raises SettingsError for a key that cannot be used."""
    auth = entry.upstream.auth
    if auth.type == "passthrough":
        refusal: Refusal = passed_on
        if auth.metadata:
            refusal = challenged_by(_mounts(settings)[entry.id].metadata_url)
        return AuthorizedUpstream(upstream, PassedCredentials(), refusal)
    prove = configured_proof(auth, settings.servers.index(entry))
    tell = partial(log.warning, "no token for the upstream", server=entry.id)
    shared = _shared(settings, store, entry) if auth.type == "client_credentials" else None
    credentials = ObtainedCredentials(entry.id, auth, prove, ObtainedTokens(time.time, tell, shared))
    return AuthorizedUpstream(upstream, credentials, refusal_by(entry.id), credentials.close)


def configured_proof(auth: UpstreamAuth, index: int) -> ClientProof:
    """The adapter's proof to the authorization server. Raises SettingsError for a key that cannot be used."""
    assert auth.client_id is not None, "settings refuse a section without"
    if auth.method != "private_key_jwt":
        client = configured_client(auth.client_id, auth.client_secret, auth.method)
        return proof_of(client)
    assert auth.private_key_file is not None, "settings refuse a section without"
    try:
        key = private_key(auth.private_key_file.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        place = f"servers[{index}].upstream.auth.private_key_file"
        raise SettingsError([Problem(place, f"{auth.private_key_file} cannot be used: {why}")]) from None
    # Some servers want their issuer identifier in it: RFC 7523 §3 leaves the audience open.
    audience = None if auth.token_endpoint is None else auth.issuer
    return SignedProof(auth.client_id, key, time.time, key_id=auth.private_key_id, audience=audience)


def check_keys(settings: Settings) -> None:
    """Raise SettingsError for a private key that cannot be used."""
    for index, entry in enumerate(settings.servers):
        if entry.upstream.auth.private_key_file is not None:
            configured_proof(entry.upstream.auth, index)


def _shared(settings: Settings, store: Store, entry: ServerSettings) -> SharedTokens | None:
    if not store.shared:
        return None
    auth = entry.upstream.auth
    # A replica with other settings, as during an update, needs another token.
    secret = "" if auth.client_secret is None else auth.client_secret.get_secret_value()
    named = f"{auth.model_dump_json()}\n{secret}"
    name = f"{entry.id}:{hashlib.sha256(named.encode()).hexdigest()[:32]}"
    rows = sealed_rows(settings, store, SECRET)
    return SharedTokens(rows, lambda lease: Lease(store, lease, LEAD), name)


# --- metadata -----------------------------------------------------------------------------------------------------


def _mounts(settings: Settings) -> Mapping[str, ProtectedResource]:
    """The mounts as protected resources, by the ids of their servers."""
    paths = {server.id: server.mount_path for server in settings.servers}
    return resources_below(settings.core.public_base_url or "", paths, ())


def republished_metadata(settings: Settings) -> Mapping[str, Callable[[], Awaitable[bytes]]]:
    """The metadata of upstreams that mounts publish, by the paths where they are served."""
    mounts = _mounts(settings)
    documents = {}
    for entry in settings.servers:
        upstream = entry.upstream
        if upstream.auth.metadata and upstream.url is not None:
            told = [upstream.auth.resource] if upstream.auth.resource else []
            mount = mounts[entry.id].url
            metadata = upstream_metadata(upstream.url, mount, token_http(), time.monotonic, told)
            documents[entry.id] = metadata.get
    places = metadata_paths(settings.core.public_base_url or "", mounts)
    return {path: documents[mount.name] for path, mount in places.items() if mount.name in documents}
