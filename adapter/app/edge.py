"""The door for clients: who may come in, the health of what is behind it, and what is recorded of each exchange."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import orjson
from structlog.typing import FilteringBoundLogger

from adapter import log
from adapter.app.core import Core
from adapter.edge.http.access import AccessTokens, Guard
from adapter.edge.http.request import Branch, LateBranches
from adapter.edge.mcp.endpoint import Endpoint
from adapter.edge.public_documents import landing_page, metadata_branch
from adapter.edge.router import ExchangeRecords, Front
from adapter.oauth.port import TokenVerifier
from adapter.relay.server import Server
from adapter.rules.access.principals import DEFAULT_TOKEN, Principals
from adapter.rules.access.resources import CONSOLE, ProtectedResource, metadata_paths, resources_below
from adapter.settings.auth import Auth, NamedToken
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError

if TYPE_CHECKING:
    from adapter.telemetry.metric_registry import MetricRegistry

# --- records ----------------------------------------------------------------------------------------------------


def record(app: Core, registry: MetricRegistry | None) -> None:
    """Build what records exchanges; metrics are kept in the ``registry``. Raises SettingsError for telemetry that
    cannot be had.
    """
    settings = app.settings
    if settings.core.access_log:
        app.calls = log.CallLog(sys.stderr.buffer)
    if settings.console.enabled:
        # Late: only the console shows them.
        from adapter.relay.http_api.recent_exchanges import Recent

        app.recent = Recent()
    if not settings.telemetry.enabled:
        return
    # Late: spans tell refusals of stages from failures, so all of these are imported for them.
    from adapter.app.tool_plans import fault
    from adapter.rules.results.refusals import public_line
    from adapter.telemetry import TelemetryMissing, open_telemetry

    try:
        app.telemetry = open_telemetry(settings.telemetry, redact=public_line, fault=fault, registry=registry)
    except TelemetryMissing as missing:
        problem = Problem(missing.setting, str(missing))
        raise SettingsError([settings.traced(problem)]) from None


# --- the door ---------------------------------------------------------------------------------------------------


def build_front(app: Core) -> Front:
    """Build the handler of all requests: mounts, the paths of health, and the branches of all parts beside them."""
    settings, health, grants = app.settings, app.health, app.grants
    endpoint = Endpoint(
        app.relay,
        app.guard,
        settings.core,
        app.log,
        app.bases,
        spans=app.server_spans(),
        grants=None if grants is None else grants.answers(app.session_parts),
    )
    _serve_mounts(app, endpoint)
    recorded = app.calls is not None or app.recent is not None
    front = Front(
        endpoint,
        mounts=mounts(app),
        routes={"/healthz": health.show, "/livez": health.live, "/readyz": health.ready},
        guard=app.guard,
        log=app.log,
        branches=branches(app),
        records=ExchangeRecords(app.guard, app.calls, app.recent) if recorded else None,
    )
    app.on_change.append(partial(_follow, app, endpoint, front))
    return front


def _follow(app: Core, endpoint: Endpoint, front: Front) -> None:
    """Serve by the settings of now."""
    endpoint.core, app.health.settings = app.settings.core, app.settings
    tokens = app.guard.access_tokens
    if tokens is not None:
        # Those of servers that have left stay: somebody may just be asked for a token.
        tokens.resources |= _resources(app.settings)
    _serve_mounts(app, endpoint)
    front.serve(mounts(app), branches(app))


def _serve_mounts(app: Core, endpoint: Endpoint) -> None:
    endpoint.merged = app.health.mounts = {each.mount.id: each for each in app.merged}


def mounts(app: Core) -> Mapping[str, Server]:
    """The servers and merged mounts by their paths."""
    served = [*app.servers.values(), *(each.mount for each in app.merged)]
    return {server.mount: server for server in served}


def branches(app: Core) -> Sequence[Branch | LateBranches]:
    """What is served beside the mounts."""
    return (*app.branches, *_metadata(app.settings), landing_page(_places(app.settings)))


def _places(settings: Settings) -> list[tuple[str, str]]:
    """What is served, by the names that the landing page shows, with its path."""
    places = [(f"servers of {mount.id}", mount.path) for mount in settings.mounts]
    places += [(f"server {server.id}", server.mount_path) for server in settings.servers]
    takers = [server for server in settings.servers if server.consumers]
    if settings.uploads.enabled:
        places += [(f"uploads for {taker.id}", f"{settings.core.upload_path}/{taker.id}") for taker in takers]
    if settings.console.enabled:
        places.append(("console", f"{settings.console.path}/"))
    prometheus = settings.telemetry.prometheus
    if prometheus.enabled and prometheus.port is None:
        places.append(("metrics", prometheus.path))
    return [*places, ("health", "/healthz")]


# --- access -----------------------------------------------------------------------------------------------------


def build_guard(
    settings: Settings, verifier: TokenVerifier | None = None, log: FilteringBoundLogger | None = None
) -> Guard:
    """Build the check of Host, Origin and token."""
    core = settings.core
    tokens = None
    if verifier is not None and core.auth.enabled:
        tokens = AccessTokens(verifier, _resources(settings), log)
    return Guard(core, _principals(core.auth) if core.auth.enabled else None, tokens)


def _resources(settings: Settings) -> Mapping[str, ProtectedResource]:
    """The protected resources: every mount, and the console."""
    oauth, base = settings.core.auth.oauth, settings.core.public_base_url
    assert oauth is not None and base is not None, "settings refuse one without the other"
    paths = {server.id: server.mount_path for server in settings.servers}
    paths |= {mount.id: mount.path for mount in settings.mounts}
    if settings.console.enabled:
        paths[CONSOLE] = settings.console.path
    scopes = dict.fromkeys(scope for issuer in oauth.issuers for scope in issuer.required_scopes)
    return resources_below(base, paths, tuple(scopes))


def _metadata(settings: Settings) -> Sequence[Branch]:
    """The metadata of the protected resources: the adapter's where it accepts access tokens, or those of upstreams."""
    auth = settings.core.auth
    if any(server.upstream.auth.metadata for server in settings.servers):
        # Late: few publish the metadata of another server. The settings refuse both kinds together.
        from adapter.app.access.upstream_auth import republished_metadata

        return (metadata_branch(republished_metadata(settings)),)
    if auth.oauth is None or not auth.enabled:
        return ()
    issuers = [entry.issuer for entry in auth.oauth.issuers]
    places = metadata_paths(settings.core.public_base_url or "", _resources(settings))
    documents = {
        path: orjson.dumps(resource.metadata(issuers, auth.oauth.documentation))
        for path, resource in places.items()
    }
    return (metadata_branch(documents),)


def _principals(auth: Auth) -> Principals:
    tokens = [(entry.name, _digest_of(entry)) for entry in auth.tokens]
    if auth.token is not None:
        tokens.append((DEFAULT_TOKEN, _digest(auth.token.get_secret_value())))
    return Principals(tokens)


def _digest_of(entry: NamedToken) -> bytes:
    if entry.token is not None:
        return _digest(entry.token.get_secret_value())
    assert entry.sha256 is not None, "settings refuse an entry with neither"
    return bytes.fromhex(entry.sha256)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
