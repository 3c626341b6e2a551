"""The plans, presenters and hosted servers of the settings, compiled. Nothing is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter import log
from adapter.app.base import Base, SharedChecks
from adapter.app.hosted import HostedTools
from adapter.app.pipeline import PlanCompiler, SharedRules
from adapter.errors import AdapterError
from adapter.hosted.scripts.scripts import CodeLoader
from adapter.pipeline.auth_stage import Plugins
from adapter.pipeline.failures import AuthRefused, CallRefused, StageFailed
from adapter.pipeline.presenters import PresentersInvalid
from adapter.pipeline.presenters import build as build_presenters
from adapter.pipeline.tracing import WalkRecorder
from adapter.relay.cleanup import CleanupTask
from adapter.relay.shared_results import SharedResults
from adapter.rules.calls.inputs import InputsRefused
from adapter.rules.presenters.presenters import Presenter, PresenterFailed
from adapter.rules.presenters.shapes import Check, StepsLeft
from adapter.rules.presenters.state_sync import Policy, StateSync, overlaps, policy
from adapter.rules.results.outcomes import ToolUserError
from adapter.rules.schema.checker import compile_schema
from adapter.rules.text.events import shortened
from adapter.rules.text.expressions import GlobInvalid
from adapter.settings.root import Settings
from adapter.settings.section import Problem
from adapter.telemetry import TelemetryMissing, require_telemetry
from adapter.upstream.outgoing import IssuerHttp

_REFUSALS = (
    StageFailed,
    CallRefused,
    AuthRefused,
    ToolUserError,
    InputsRefused,
    PresenterFailed,
    TimeoutError,
)


def compiled(
    settings: Settings,
    logger: FilteringBoundLogger | None = None,
    observing: WalkRecorder | None = None,
    checks: SharedChecks | None = None,
    environ: Mapping[str, str] = os.environ,
    shared: SharedResults | None = None,
) -> HostedTools:
    """Compile the settings. Raises SettingsError with every problem in them. Without ``checks`` it builds its own.

    Without ``shared`` nothing is shared with other replicas.
    """
    logger = logger or log.get_logger("adapter")
    checks = checks or SharedChecks(logger)
    loading = CodeLoader(settings.directory, logger)
    planning = PlanCompiler(
        settings,
        loading,
        Plugins(environ, IssuerHttp().document, logger),
        SharedRules(_presenters(settings, loading), _state_sync(settings, loading, logger)),
        checks.checks,
        observing,
        shared,
    )
    found = HostedTools(planning, environ)
    for index, entry in enumerate(settings.servers):
        if planning.concerns(entry):
            planning.check(entry, f"servers[{index}]")
    try:
        require_telemetry(settings.telemetry)
    except TelemetryMissing as missing:
        loading.problems.append(Problem(missing.setting, str(missing)))
    found.require()
    return found


def shared_parts(base: Base) -> SharedResults | None:
    """What stages share with other replicas; None where nobody else uses the store."""
    if not base.store.shared:
        return None
    servers = base.settings.servers
    caches = any(stages.cache.shared for entry in servers for stages in entry.stages.values())
    caches = caches or any(tool.cache.shared for entry in servers for tool in entry.tools.define)
    shared = SharedResults(base.store, base.background, caches=caches)
    base.tasks.append(CleanupTask("shared results", shared.tidy))
    return shared


def fault(error: Exception) -> BaseException | None:
    """Return the exception that makes a span an error; None for a refusal.

    For a stage that failed it is the exception behind the failure.
    """
    if isinstance(error, StageFailed):
        cause = error.__context__
        return None if not isinstance(cause, Exception) or isinstance(cause, _REFUSALS) else cause
    if isinstance(error, _REFUSALS) or (isinstance(error, AdapterError) and error.http < 500):
        return None
    return error


# --- presenters -----------------------------------------------------------------------------------------------


def _presenters(settings: Settings, loading: CodeLoader) -> dict[str, Presenter]:
    def load(reference: str) -> Callable[..., Any]:
        return loading.function(reference, least=1, most=2).plain

    try:
        return build_presenters(settings.presenters, load, _judge)
    except PresentersInvalid as refused:
        loading.problems += [Problem(place, sentence) for place, sentence in refused.problems]
        return {}


def _judge(schema: Mapping[str, Any]) -> Check:
    checker = compile_schema(schema)
    for pattern, why in checker.unjudged.items():
        raise ValueError(f"{shortened(pattern, 100)!r} is not a valid regular expression: {why}")

    def check(data: Any, steps: StepsLeft) -> list[tuple[Sequence[str | int], str]]:
        judgement = checker.judged(data, steps=steps.left)
        steps.left -= judgement.steps
        return [(fault.path, fault.keyword) for fault in judgement.faults]

    return check


# --- state sync -----------------------------------------------------------------------------------------------


def _state_sync(settings: Settings, loading: CodeLoader, logger: FilteringBoundLogger) -> StateSync:
    section = settings.state_sync
    policies: list[Policy] = []
    for index, each in enumerate(section.policies):
        with loading.judging(f"state_sync.policies[{index}]", GlobInvalid):
            policies.append(policy(each.match, each.cache_control, each.invalidates))
    for overlap in overlaps(policies):
        logger.warning("a policy never counts", setting="state_sync.policies", why=str(overlap))
    return StateSync(tuple(policies), section.defaults.cache_control, section.wording)
