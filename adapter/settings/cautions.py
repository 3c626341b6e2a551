"""Warnings about settings that are valid, and have an effect that is easy to overlook, or none."""

from __future__ import annotations

from collections.abc import Iterator

from adapter.settings.auth import Auth
from adapter.settings.oauth import oauth_cautions
from adapter.settings.root import Settings
from adapter.settings.section import Problem, is_loopback
from adapter.settings.servers.upstream_auth import auth_cautions
from adapter.settings.state_consistency import state_cautions


def cautions(settings: Settings) -> Iterator[Problem]:
    """A warning for each setting with an effect that is easy to overlook, or without any."""
    yield from settings.retired
    yield from state_cautions(settings)
    for index, server in enumerate(settings.servers):
        yield from auth_cautions(server.upstream.auth, server.upstream.url, f"servers[{index}].upstream.auth")
    if any(server.upstream.auth.type == "authorization_code" for server in settings.servers):
        yield from _grant_cautions(settings)
    if settings.core.auth.enabled:
        yield from _short_tokens(settings.core.auth)
        yield from oauth_cautions(settings.core.auth.oauth, settings.core.public_base_url)
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
