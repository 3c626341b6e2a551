"""Plans of tools, compiled from what the settings say of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.app.loading import Loading
from adapter.hosted.references import ScriptInvalid
from adapter.pipeline.auth import Authenticating, Authenticator, Custom, fingerprint
from adapter.pipeline.cache import ResultCache
from adapter.pipeline.caching import Caches, Caching, varying
from adapter.pipeline.call import PlannedCall, PlanStage
from adapter.pipeline.failures import ErrorStyle
from adapter.pipeline.gathering import Gathering
from adapter.pipeline.limits import Concurrency, Rate, Serial, rate_key
from adapter.pipeline.mappers import InputMapping, OutputMapping
from adapter.pipeline.middleware import Middleware
from adapter.pipeline.plan import Step, ToolPlan
from adapter.pipeline.plugins import BUILT_IN, Plugins
from adapter.pipeline.presenting import Presenting, definition_with_select
from adapter.pipeline.syncing import Syncing, definition_with_cache_control
from adapter.pipeline.tracing import Observing
from adapter.pipeline.validating import Coercing, Validating
from adapter.rules.globs import GlobInvalid
from adapter.rules.inputs import Input
from adapter.rules.presenters import Presenter
from adapter.rules.state_sync import Invalidation, StateSync, policy
from adapter.settings.root import Settings
from adapter.settings.servers import Server
from adapter.settings.stages import ToolStages
from adapter.settings.tools import Tool

CODE_TIMEOUT = 30.0
"""Seconds that a mapper may take."""

Schema = Callable[[PlannedCall], Awaitable[Mapping[str, Any] | None]]
ReadOnly = Callable[[PlannedCall], Awaitable[bool]]


@dataclass(slots=True)
class Known:
    """What an upstream's list says of the tool of a call: its schema, and whether it only reads."""

    schema: Schema
    read_only: ReadOnly


async def _unknown(_: PlannedCall) -> None:
    """The schema of a tool whose arguments nobody checks here."""


async def _not_known(_: PlannedCall) -> bool:
    return False


UNKNOWN = Known(_unknown, _not_known)
"""Where there is no upstream to ask."""


@dataclass(slots=True)
class Planning:
    """``say`` tells a call's client of resources that went stale."""

    settings: Settings
    loading: Loading
    plugins: Plugins
    presenters: Mapping[str, Presenter]
    sync: StateSync
    log: FilteringBoundLogger
    observing: Observing | None = None
    caches: Caches = field(default_factory=Caches)

    def cache_of(self, entry: Server) -> ResultCache:
        """The results of one server's tools."""
        try:
            return self.caches[entry.id]
        except KeyError:
            self.caches.add(entry.id, ResultCache(entry.tools.cache.max_bytes, time.monotonic))
            return self.caches[entry.id]

    # --- hosted tools -----------------------------------------------------------------------------------------

    def hosted(self, entry: Server, tool: Tool, inputs: Mapping[str, Input], place: str) -> ToolPlan:
        """The plan of a hosted tool, whose arguments are always checked. Problems are noted."""
        stages = entry.stages_of(tool)
        presenter = self._presenter(stages)
        compiling = _Compiling(self, entry, tool.name, stages, place)
        steps = [
            *compiling.before(serial=tool.destructive),
            *compiling.shaping(presenter, rows=tool.rows),
            Step(
                7,
                "validate",
                f"{len(inputs)} inputs, strictly",
                Coercing(tool.name, inputs, selects=_selects(presenter)),
            ),
            *compiling.middleware(),
        ]
        return compiling.plan("script" if tool.handler is not None else "statement", steps)

    def definition(self, entry: Server, tool: Tool, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """A hosted tool's entry of ``tools/list`` with what its stages add."""
        return self._decorated(entry, entry.stages_of(tool), definition)

    # --- tools of upstreams -----------------------------------------------------------------------------------

    def concerns(self, entry: Server) -> bool:
        """Whether any tool of an upstream may have a plan."""
        return entry.upstream.transport != "hosted" and bool(entry.stages or self.sync.policies)

    def check(self, entry: Server, place: str) -> None:
        """Compile what every glob says once, so that what is wrong with it is known at start."""
        for glob, stages in entry.stages.items():
            where = f"{place}.stages.{glob}"
            if stages.limits.timeout is not None:
                with self.loading.judging(f"{where}.limits.timeout", ValueError):
                    raise ValueError(
                        "is for hosted tools; tool_defaults.tool_call_timeout_seconds is for others"
                    )
            self._proxied(entry, glob, stages, UNKNOWN, where)

    def proxied(self, entry: Server, tool: str, known: Known) -> ToolPlan | None:
        """The plan of an upstream's tool; None for one that nothing is said of."""
        stages = entry.stages_for(tool)
        if not stages.said and self.sync.policy_for(entry.id, tool) is None:
            return None
        return self._proxied(entry, tool, stages, known, "")

    def decorate(self, entry: Server, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """A tool's entry of an upstream's list with what its stages add; the same object where that is nothing."""
        return self._decorated(entry, entry.stages_for(str(definition["name"])), definition)

    def _proxied(self, entry: Server, tool: str, stages: ToolStages, known: Known, place: str) -> ToolPlan:
        presenter = self._presenter(stages)
        compiling = _Compiling(self, entry, tool, stages, place)
        steps = [
            *compiling.before(serial=False),
            *compiling.shaping(presenter, rows=False),
        ]
        if stages.validated or _selects(presenter):
            schema = known.schema if stages.validated else _unknown
            detail = "by the upstream's schema, strictly" if stages.validated else "takes _select"
            run = Validating(tool, schema, strict=True, selects=_selects(presenter))
            steps.append(Step(7, "validate", detail, run))
        steps += compiling.middleware()
        if stages.cache.enabled:
            steps.append(compiling.caching(known.read_only))
        return compiling.plan("proxied", steps)

    # --- both -------------------------------------------------------------------------------------------------

    def sync_of(self, tool: str, stages: ToolStages) -> StateSync:
        """All policies, with what the tool says of itself behind them."""
        said = stages.state_sync
        if not said.said:
            return self.sync
        try:
            own = policy(tool, said.cache_control, said.invalidates)
        except GlobInvalid:
            return self.sync
        return self.sync.with_policies([own])

    def _presenter(self, stages: ToolStages) -> Presenter | None:
        return None if stages.presenter is None else self.presenters.get(stages.presenter)

    def _decorated(
        self, entry: Server, stages: ToolStages, definition: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        presenter = self._presenter(stages)
        if presenter is not None or stages.mappers.output is not None:
            # What leaves is another shape than the tool promises, and clients refuse what breaks a promise.
            definition = {key: value for key, value in definition.items() if key != "outputSchema"}
        if presenter is not None:
            definition = definition_with_select(definition, presenter)
        sync = self.sync_of(str(definition["name"]), stages)
        return definition_with_cache_control(definition, sync, entry.id)


class _Compiling:
    """One tool's steps. ``place`` is where the settings speak of it, for problems."""

    def __init__(self, planning: Planning, entry: Server, tool: str, stages: ToolStages, place: str) -> None:
        self._structured = entry.upstream.transport != "hosted"
        self._planning = planning
        self._loading = planning.loading
        self._entry = entry
        self._tool = tool
        self._stages = stages
        self._place = place
        errors = planning.settings.errors_for(entry, stages)
        self._style = ErrorStyle(errors.mode, errors.expose)
        self._log = planning.log.bind(server=entry.id)

    def plan(self, kind: Any, steps: list[Step]) -> ToolPlan:
        egress = self._stages.limits.egress
        return ToolPlan(
            self._tool, kind, steps, self._style, egress=egress, observing=self._planning.observing
        )

    def before(self, *, serial: bool) -> list[Step]:
        """Who and how many get in."""
        steps: list[Step] = []
        factory = self._planning.settings.context.factory
        if factory is not None:
            with self._loading.judging("context.factory", ScriptInvalid):
                function = self._loading.function(factory, least=1, most=1)
                run = Gathering(self._tool, function, self._style.expose, self._log)
                steps.append(Step(2, "context", factory, run))
        auth = self._stages.auth
        if auth is not None:
            with self._loading.judging(f"{self._place}.auth", ScriptInvalid, ValueError):
                plugin = self._authenticator(auth.plugin, auth.policy)
                who = Authenticating(self._tool, plugin, self._style.expose, self._log)
                steps.append(Step(3, "auth", plugin.name, who))
        limits = self._stages.limits
        if limits.rate is not None:
            rate = limits.rate
            counted = Rate(self._tool, rate.max, rate.window, rate_key(rate.key, fingerprint), time.monotonic)
            detail = f"{rate.max} calls in {rate.window:g} s for each {rate.key}"
            steps.append(Step(5, "limits", detail, counted))
        if serial:
            steps.append(Step(5, "limits", "one call at a time, as it is destructive", Serial(self._tool)))
        if limits.concurrency is not None:
            most, queue = limits.concurrency.max_active, limits.concurrency.max_queue
            detail = f"{most} calls at once, {queue} may wait"
            steps.append(Step(5, "limits", detail, Concurrency(self._tool, most, queue)))
        return steps

    def shaping(self, presenter: Presenter | None, *, rows: bool) -> list[Step]:
        """What becomes of the answer, the last thing first, and of the arguments."""
        steps: list[Step] = []
        planning = self._planning
        sync = planning.sync_of(self._tool, self._stages)
        if sync.policies or sync.default is not None or self._stages.state_sync.said:
            steps.append(
                Step(12, "state_sync", _detail(sync, self._entry.id, self._tool), self._syncing(sync), True)
            )
        if presenter is not None:
            shown = Presenting(self._tool, presenter, self._log, structured=self._structured)
            steps.append(Step(11, "presenter", presenter.name, shown, True))
        mappers = self._stages.mappers
        expose = self._style.expose
        if mappers.output is not None:
            with self._loading.judging(f"{self._place}.mappers.output", ScriptInvalid):
                code = self._loading.script(mappers.output)
                made = OutputMapping(
                    self._tool, code, CODE_TIMEOUT, expose, self._log, rows=rows, whole=self._structured
                )
                steps.append(Step(10, "output_transform", mappers.output, made, True))
        if mappers.input is not None:
            with self._loading.judging(f"{self._place}.mappers.input", ScriptInvalid):
                code = self._loading.script(mappers.input)
                run: PlanStage = InputMapping(self._tool, code, CODE_TIMEOUT, expose, self._log)
                steps.append(Step(6, "input_transform", mappers.input, run))
        return steps

    def middleware(self) -> list[Step]:
        """The functions around the execution, first is outermost."""
        steps: list[Step] = []
        for index, reference in enumerate(self._stages.middleware):
            with self._loading.judging(f"{self._place}.middleware[{index}]", ScriptInvalid, ValueError):
                function = self._loading.function(reference, least=1, most=3)
                run = Middleware(
                    self._tool, function, self._style.expose, self._log, structured=self._structured
                )
                steps.append(Step(8, "middleware", reference, run, True))
        return steps

    def caching(self, read_only: ReadOnly) -> Step:
        """Keeping the answers of an upstream's tool."""
        said, server = self._stages.cache, self._entry.tools.cache
        words = said.vary
        if words is None:
            # An upstream may answer each session from a state of its own.
            words = ["identity", "session"] if self._stages.auth is not None else ["session"]
        ttl = said.ttl or server.ttl
        cache = self._planning.cache_of(self._entry)
        run = Caching(self._tool, cache, ttl, varying(words, fingerprint), read_only, self._digest())
        return Step(9, "cache", f"{ttl:g} s, apart by {', '.join(words) or 'nothing'}", run)

    def _digest(self) -> str:
        text = f"{self._entry.id}\n{self._entry.upstream.url}\n{self._stages.model_dump_json()}"
        return hashlib.sha256(text.encode()).hexdigest()

    def _authenticator(self, plugin: str, policy: Mapping[str, Any]) -> Authenticator:
        if plugin in BUILT_IN:
            return self._planning.plugins.built_in(plugin, policy)
        return Custom(self._loading.function(plugin, least=1, most=2), policy)

    def _syncing(self, sync: StateSync) -> Syncing:
        observer = self._planning.settings.state_sync.observer
        observe = None
        if observer is not None:
            with self._loading.judging("state_sync.observer", ScriptInvalid):
                observe = self._loading.function(observer, least=1, most=1)
        return Syncing(self._entry.id, self._tool, sync, self._purge, _say_stale, observe, self._log)

    def _purge(self, invalidation: Invalidation) -> None:
        self._planning.caches.purge(invalidation)


async def _say_stale(call: PlannedCall, invalidation: Invalidation) -> None:
    for uri in invalidation.stale_uris():
        call.say("notifications/resources/updated", {"uri": uri})


def _selects(presenter: Presenter | None) -> bool:
    return presenter is not None and presenter.select_schema is not None


def _detail(sync: StateSync, server: str, tool: str) -> str:
    found = sync.invalidation(server, tool)
    return (
        f"invalidates {', '.join(map(str, found.patterns))}" if found is not None else "invalidates nothing"
    )
