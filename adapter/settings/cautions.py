"""Warnings about settings that are valid, and have an effect that is easy to overlook, or none."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from adapter.settings.auth import Auth, OAuth
from adapter.settings.root import Settings
from adapter.settings.section import Problem, is_loopback
from adapter.settings.servers.upstream_auth import UpstreamAuth
from adapter.settings.storage import StatePersistence

_CHANGEABLE = frozenset(
    ("email", "preferred_username", "upn", "unique_name", "username", "user_name", "name", "nickname")
)
"""Claims that can be changed, or given to another person later (OpenID Connect Core §5.7)."""


def cautions(settings: Settings) -> Iterator[Problem]:
    """A warning for each setting with an effect that is easy to overlook, or without any."""
    yield from settings.retired
    yield from _state_cautions(settings)
    yield from _scope_cautions(settings)
    for index, server in enumerate(settings.servers):
        yield from _auth_cautions(
            server.upstream.auth, server.upstream.url, f"servers[{index}].upstream.auth"
        )
    if any(server.upstream.auth.type == "authorization_code" for server in settings.servers):
        yield from _grant_cautions(settings)
    if settings.core.auth.enabled:
        yield from _short_tokens(settings.core.auth)
        yield from _oauth_cautions(settings.core.auth.oauth, settings.core.public_base_url)
    else:
        yield from _open_to_all(settings.core.host)
        yield from _common_principal(settings)


def _open_to_all(host: str) -> Iterator[Problem]:
    if not is_loopback(host):
        sentence = (
            f"is {host} and core.auth is not enabled, so everybody who reaches this address can call all tools: enable "
            "core.auth, or set core.host to 127.0.0.1"
        )
        yield Problem("core.host", sentence)


def _common_principal(settings: Settings) -> Iterator[Problem]:
    everybody = "core.auth is not enabled, so all callers are one principal:"
    if settings.sessions.upstream == "principal":
        yield Problem(
            "sessions.upstream",
            f"{everybody} they share one session at each server, with its pages, logins and notifications",
        )
    if settings.sessions.missing_id == "principal":
        yield Problem(
            "sessions.missing_id",
            f"{everybody} all requests without a session id use the same session",
        )
    for index, server in enumerate(settings.servers):
        if server.upstream.process == "per_principal":
            yield Problem(
                f"servers[{index}].upstream.process",
                f"{everybody} they share one process, with all that it keeps in memory",
            )


def _scope_cautions(settings: Settings) -> Iterator[Problem]:
    """Find files whose owner does not fit the hosts that the other settings are for."""
    sessions = settings.sessions
    if not any(server.adapters for server in settings.servers):
        return
    if sessions.scope == "principal" and not settings.core.auth.enabled:
        sentence = (
            "core.auth is not enabled, so all callers are one principal: they share their files and pins"
        )
        yield Problem("sessions.scope", sentence)
    if sessions.scope == "session" and sessions.upstream == "principal":
        sentence = (
            "is session, and sessions.upstream is for hosts that open a session for every call: a file that a tool "
            "wrote is unknown in their next call, unless this is principal"
        )
        yield Problem("sessions.scope", sentence)


SHORTEST_TOKEN = 16
"""Characters below which a token may be guessed."""


def _grant_cautions(settings: Settings) -> Iterator[Problem]:
    if settings.core.secret is None and settings.state_persistence.type != "memory":
        sentence = (
            "is not set: what people authorize is sealed with a key that lies in the same state store, so whoever can "
            "read the store can act as these people"
        )
        yield Problem("core.secret", sentence)
    if not settings.core.auth.enabled:
        for index, server in enumerate(settings.servers):
            if server.upstream.auth.type == "authorization_code":
                sentence = (
                    "core.auth is not enabled, so all callers are one principal: what one of them authorizes serves "
                    "everybody who can reach the adapter"
                )
                yield Problem(f"servers[{index}].upstream.auth.type", sentence)


def _short_tokens(auth: Auth) -> Iterator[Problem]:
    named = [(f"core.auth.tokens[{index}].token", entry.token) for index, entry in enumerate(auth.tokens)]
    secrets = (("core.auth.token", auth.token), ("core.auth.signing_secret", auth.signing_secret), *named)
    for place, secret in secrets:
        if secret is not None and len(secret.get_secret_value()) < SHORTEST_TOKEN:
            sentence = (
                f"has fewer than {SHORTEST_TOKEN} characters and may be guessed: use openssl rand -hex 32"
            )
            yield Problem(place, sentence)


def _oauth_cautions(oauth: OAuth | None, public_base_url: str | None) -> Iterator[Problem]:
    """A warning for each setting of the section with an effect that is easy to overlook."""
    if oauth is None:
        return
    parts = urlsplit(public_base_url or "")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        sentence = "begins with http://, so access tokens cross the network unencrypted: use https://"
        yield Problem("core.public_base_url", sentence)
    for index, entry in enumerate(oauth.issuers):
        if entry.principal_claim in _CHANGEABLE:
            sentence = (
                f"{entry.principal_claim} can change, or pass to another person, who then owns the sessions and "
                "files: use sub unless your issuer promises otherwise"
            )
            yield Problem(f"core.auth.oauth.issuers[{index}].principal_claim", sentence)


def _auth_cautions(auth: UpstreamAuth, url: str | None, path: str) -> Iterator[Problem]:
    """A warning for each effect of the section that is easy to overlook."""
    if auth.type == "passthrough":
        sentence = (
            "passthrough sends the Authorization header of every caller to the upstream, also where it is the caller's "
            "token for the adapter: whoever runs the upstream can act as these callers"
        )
        yield Problem(f"{path}.type", sentence)
    parts = urlsplit(url or "")
    if (
        auth.type not in ("none", "static")
        and parts.scheme == "http"
        and not is_loopback(parts.hostname or "")
    ):
        sentence = "begins with http://, so credentials cross the network unencrypted: use https://"
        yield Problem(f"{path.rpartition('.')[0]}.url", sentence)


def _state_cautions(settings: Settings) -> Iterator[Problem]:
    """Find settings of replicas and of the state store that nothing asks for."""
    yield from _lonely_replica(settings)
    state = settings.state_persistence
    if state.type != "redis" and _is_set(state, "cache_seconds"):
        sentence = (
            f"has no effect with state_persistence.type {state.type}: only with redis may changes by other "
            "replicas not be heard; remove it"
        )
        yield Problem("state_persistence.cache_seconds", sentence)
    if state.type != "memory" and _is_set(state, "snapshot_interval_seconds"):
        sentence = (
            f"has no effect with state_persistence.type {state.type}, which keeps each change anyway; "
            "remove it"
        )
        yield Problem("state_persistence.snapshot_interval_seconds", sentence)


def _is_set(state: StatePersistence, key: str) -> bool:
    """Tell whether the file sets a value; a default that stands there, as in effective settings, does no harm."""
    return key in state.said and getattr(state, key) != StatePersistence.model_fields[key].default


def _lonely_replica(settings: Settings) -> Iterator[Problem]:
    """Find settings of a replica where there are no others, or where they cannot hold for each of several workers."""
    core = settings.core
    given = [key for key in ("id", "address") if getattr(core.replica, key) is not None]
    if core.workers == 1 and not settings.shares_state:
        for key in given:
            sentence = (
                "has no effect: this process shares its state with no other; set state_persistence.type to redis, "
                "or remove it"
            )
            yield Problem(f"core.replica.{key}", sentence)
    elif core.workers != 1 and not settings.shares_state and "address" in given:
        sentence = "has no effect: workers with one SQLite file reach each other at 127.0.0.1; remove it"
        yield Problem("core.replica.address", sentence)
