"""The parts of the adapter that only some settings ask for: None where they do not, and not even imported then."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from adapter.app.edge import Observation
from adapter.app.relay import Runtime
from adapter.app.validation import SharedChecks
from adapter.edge.http.access import Guard
from adapter.oauth.port import TokenVerifier
from adapter.settings.root import Settings
from adapter.state.port import Store

if TYPE_CHECKING:
    from adapter.app.access.browser_sign_in import BrowserSignIn
    from adapter.app.access.grants import GrantParts
    from adapter.app.measuring.parts import Metering
    from adapter.app.replicas import ReplicaParts
    from adapter.app.shared_stages import SharedParts
    from adapter.app.tool_plans import Compiled


class OptionalParts(NamedTuple):
    """``shared`` is what stages share with other replicas, ``replicas`` this process's part among several.

    ``grants`` asks people for grants, ``sign_in`` signs them in to the console, and ``metering`` counts.
    """

    shared: SharedParts | None
    replicas: ReplicaParts | None
    grants: GrantParts | None
    sign_in: BrowserSignIn | None
    metering: Metering | None


def build_shared(settings: Settings, store: Store, runtime: Runtime) -> SharedParts | None:
    """Build what stages share with other replicas; None where nobody else uses the store, or there are no stages."""
    if not (store.shared and settings.asks_for_plans):
        return None
    # Late, as the plans.
    from adapter.app.shared_stages import SharedParts

    servers = settings.servers
    caches = any(stages.cache.shared for entry in servers for stages in entry.stages.values())
    caches = caches or any(tool.cache.shared for entry in servers for tool in entry.tools.define)
    return SharedParts(store, runtime.background, caches=caches)


def build_plans(
    settings: Settings,
    runtime: Runtime,
    observation: Observation,
    checks: SharedChecks,
    shared: SharedParts | None,
) -> Compiled | None:
    """Compile the plans of tools; None where the settings ask for none. Raises SettingsError."""
    if not settings.asks_for_plans:
        return None
    # Late: the stages of plans and the tools that run here are a third of all code, and a proxy needs none of it.
    from adapter.app.tool_plans import compiled

    return compiled(settings, runtime.log, observation.of_plans(), checks, shared=shared)


def build_verifier(settings: Settings, runtime: Runtime) -> TokenVerifier | None:
    """Build the verifier of access tokens; None where none are accepted."""
    auth = settings.core.auth
    if auth.oauth is None or not auth.enabled:
        return None
    # Late: it loads cryptography.
    from adapter.app.access import verification

    return verification.build_verifier(auth.oauth, runtime.log)


def build_sign_in(
    settings: Settings, store: Store, guard: Guard, verifier: TokenVerifier | None
) -> BrowserSignIn | None:
    """Build the sign-in of people to the console; None where there is none."""
    if not settings.console.enabled or settings.console.oauth is None or verifier is None:
        return None
    # Late: it loads cryptography.
    from adapter.app.access.browser_sign_in import build_browser_sign_in

    return build_browser_sign_in(settings, settings.console.oauth, store, guard, verifier)


def build_grants(settings: Settings, store: Store, runtime: Runtime) -> GrantParts | None:
    """Build what asks people for grants; None where no upstream needs one."""
    if all(entry.upstream.auth.type != "authorization_code" for entry in settings.servers):
        return None
    # Late: few upstreams need them, and the library that seals them takes its time.
    from adapter.app.access.grants import GrantParts

    return GrantParts(settings, store, runtime)


def build_replicas(settings: Settings, store: Store, runtime: Runtime) -> ReplicaParts | None:
    """Build this process's part among several; None where it is the only one that uses the store."""
    if not store.shared:
        return None
    # Late: most adapters are one process.
    from adapter.app.replicas import ReplicaParts

    return ReplicaParts(settings, store, runtime, alone=not settings.has_other_workers)
