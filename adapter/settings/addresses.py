"""Checks of the paths and ports that the adapter serves: each belongs to one of its parts, and who may reach it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from adapter.settings.root import Settings
from adapter.settings.section import Problem, is_loopback

HEALTH_ROUTES = ("/healthz", "/livez", "/readyz")
ROUTES_OF_TREES = ("/artifacts", "/_replica", "/.well-known/oauth-protected-resource")
"""Paths that the adapter serves with all that is below them."""

GRANTS_ROUTE = "/authorize"
"""The path below which people authorize the adapter."""

_OWN = dict.fromkeys((*HEALTH_ROUTES, *ROUTES_OF_TREES), "a route of the adapter itself")


def address_problems(settings: Settings) -> Iterator[Problem]:
    """Find paths and ports that are taken, and parts that would be open to everybody."""
    yield from _mounts(settings)
    yield from _console(settings)
    yield from _metrics(settings)
    if any(server.upstream.auth.type == "authorization_code" for server in settings.servers):
        yield from _grant_pages(settings)


class _ClientPath(NamedTuple):
    """A path at which clients speak MCP, its ``place`` in the file, and its owner in words."""

    place: str
    path: str
    owner: str


def _client_paths(settings: Settings) -> Iterator[_ClientPath]:
    for index, server in enumerate(settings.servers):
        place = f"servers[{index}].mount_path"
        yield _ClientPath(place, server.mount_path, f"the mount_path of {server.id}")
    for index, mount in enumerate(settings.mounts):
        yield _ClientPath(f"mounts[{index}].path", mount.path, f"the path of the mount {mount.id}")


def _mounts(settings: Settings) -> Iterator[Problem]:
    upload = settings.core.upload_path
    if upload in _OWN:
        yield Problem("core.upload_path", f"{upload} is a route of the adapter itself")
    first: dict[str, _ClientPath] = {}
    for path in _client_paths(settings):
        place, mount = path.place, path.path
        if mount in HEALTH_ROUTES or any(_within(mount, route) for route in ROUTES_OF_TREES):
            yield Problem(place, f"{mount} is a route of the adapter itself")
        elif _within(mount, upload):
            yield Problem(place, f"{mount} is below core.upload_path, which is {upload}")
        if (other := first.setdefault(mount, path)) != path:
            section, _, key = other.place.rpartition(".")
            yield Problem(place, f"{mount} is already the {key} of {section}")


def _console(settings: Settings) -> Iterator[Problem]:
    console, auth, exposure = settings.console, settings.core.auth, settings.core.exposure
    names = {token.name for token in auth.tokens}
    for index, operator in enumerate(console.operators):
        if operator not in names:
            yield Problem(
                f"console.operators[{index}]", f"no entry of core.auth.tokens has the name {operator}"
            )
    if console.discovery_auth and not auth.enabled:
        yield Problem(
            "console.discovery_auth", "requires a token, but core.auth is not enabled: enable core.auth"
        )
    if not console.enabled:
        return
    if not auth.enabled and exposure is not None:
        sentence = f"is not allowed, because {exposure} and core.auth is not enabled: enable core.auth"
        yield Problem("console.enabled", sentence)
    taken = _OWN | {settings.core.upload_path: "core.upload_path"}
    yield from _not_free("console.path", console.path, taken)
    for mount in _client_paths(settings):
        # The console may be below a mount: whoever asks for it means the longer path.
        if _within(mount.path, console.path):
            yield Problem("console.path", f"{console.path} is not free: {mount.path} is {mount.owner}")


def _metrics(settings: Settings) -> Iterator[Problem]:
    prometheus, core = settings.telemetry.prometheus, settings.core
    if not prometheus.enabled:
        return
    if prometheus.place is not None:
        if prometheus.port == core.port and core.host in (prometheus.place[0], "0.0.0.0", "::"):  # noqa: S104 (compared)
            yield Problem("telemetry.prometheus.port", "is already core.port: remove it, or choose another")
        return
    if core.exposure is not None and not core.auth.enabled:
        sentence = (
            f"is not allowed, because {core.exposure} and core.auth is not enabled: enable core.auth, or set "
            "telemetry.prometheus.port"
        )
        yield Problem("telemetry.prometheus.enabled", sentence)
    taken = _OWN | {core.upload_path: "core.upload_path"}
    if settings.console.enabled:
        taken[settings.console.path] = "console.path"
    yield from _not_free("telemetry.prometheus.path", prometheus.path, taken)
    for mount in _client_paths(settings):
        if mount.path == prometheus.path:
            yield Problem("telemetry.prometheus.path", f"{prometheus.path} is not free: it is {mount.owner}")


def _not_free(place: str, path: str, taken: Mapping[str, str]) -> Iterator[Problem]:
    """The taken paths, each with its owner, that are the same as ``path``, above it or below it."""
    for other, owner in taken.items():
        if _within(path, other) or _within(other, path):
            yield Problem(place, f"{path} is not free: {other} is {owner}")


def _within(path: str, route: str) -> bool:
    return path == route or path.startswith(f"{route}/")


def _grant_pages(settings: Settings) -> Iterator[Problem]:
    """Conflicts with the pages on which people authorize the adapter."""
    paths = {mount.place: mount.path for mount in _client_paths(settings)}
    paths |= {"core.upload_path": settings.core.upload_path, "console.path": settings.console.path}
    for place, path in paths.items():
        if _within(path, GRANTS_ROUTE):
            yield Problem(place, f"{path} belongs to the pages of upstream.auth.type authorization_code")
    parts = urlsplit(settings.core.public_base_url or "https:")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        sentence = "must begin with https:// for upstream.auth.type authorization_code, or name this machine"
        yield Problem("core.public_base_url", sentence)
