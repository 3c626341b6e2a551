"""Plans of tools, compiled from the settings."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from adapter.hosted.scripts.references import ScriptInvalid
from adapter.hosted.scripts.scripts import CodeLoader
from adapter.pipeline.auth_stage import (
    BUILT_IN,
    ApiKey,
    Authenticator,
    AuthStage,
    Custom,
    Plugins,
)
from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.code_stages import (
    CodeFailures,
    ContextStage,
    InputMapperStage,
    Middleware,
    OutputMapperStage,
)
from adapter.pipeline.failures import ErrorStyle, Outcome, Stage
from adapter.pipeline.limits_stage import Concurrency, Rate, SharedRate, rate_key
from adapter.pipeline.order import Slot
from adapter.pipeline.plan import Kind, Listed, NameStage, Step, ToolPlan
from adapter.pipeline.presenters import PresenterStage, definition_with_select
from adapter.pipeline.result_cache import (
    CacheStage,
    ResultCache,
    ResultFinder,
    kept_for,
    purge,
    varying,
    varying_by_credential,
)
from adapter.pipeline.state_sync_stage import Listeners, StateSyncStage, definition_with_cache_control
from adapter.pipeline.tracing import WalkRecorder
from adapter.pipeline.validation_stage import CoercionStage, SchemaChecks, ValidationStage
from adapter.rules.calls.input_schemas import DeclaredInputs
from adapter.rules.files.structured_artifacts import shortenable
from adapter.rules.presenters.presenters import Presenter
from adapter.rules.presenters.state_sync import Invalidation, StateSync, policy
from adapter.rules.text.expressions import GlobInvalid
from adapter.rules.text.unicode import reading
from adapter.settings.root import Settings
from adapter.settings.servers.hosted_tools import ToolSettings
from adapter.settings.servers.server import ServerSettings, fits
from adapter.settings.servers.stages import ToolStages

if TYPE_CHECKING:
    from adapter.relay.shared_results import ServerResults, SharedResults

Schema = Callable[[PlannedCall], Awaitable[Mapping[str, Any] | None]]
ReadOnly = Callable[[PlannedCall], Awaitable[bool]]


@dataclass(slots=True)
class Known:
    """The facts about a call's tool in an upstream's list: its schema, whether it only reads, whether it is there."""

    schema: Schema
    read_only: ReadOnly
    listed: Listed


async def _unknown(_: PlannedCall) -> None:
    """The schema of a tool whose arguments nobody checks here."""


async def _not_known(_: PlannedCall) -> bool:
    return False


async def _unchanged(call: PlannedCall, forward: Forward) -> Outcome:
    """A stage that does nothing."""
    return await forward(call)


UNKNOWN = Known(_unknown, _not_known, _not_known)
"""The facts where there is no upstream to ask."""


class SharedRules(NamedTuple):
    """The presenters by their names, and the policies on stale data: both are for the tools of all servers."""

    presenters: Mapping[str, Presenter]
    sync: StateSync


@dataclass(slots=True)
class PlanCompiler:
    """Compiles the plan of any tool. Whatever cannot be made is noted as a problem of ``loading``."""

    settings: Settings
    loading: CodeLoader
    plugins: Plugins
    rules: SharedRules
    checks: SchemaChecks
    observing: WalkRecorder | None = None
    shared: SharedResults | None = None
    caches: dict[str, ResultCache] = field(default_factory=dict, init=False)

    def cache_of(self, entry: ServerSettings) -> ResultCache:
        """Return the results of one server's tools."""
        if entry.id not in self.caches:
            self.caches[entry.id] = ResultCache(entry.tools.cache.max_bytes, time.monotonic)
        return self.caches[entry.id]

    def shared_results(self, entry: ServerSettings) -> ServerResults | None:
        """Return the results that replicas share; None where there is nothing to share them in."""
        if self.shared is None:
            return None
        return self.shared.results_of(entry.id, entry.tools.cache.max_bytes)

    def purge(self, invalidation: Invalidation) -> Awaitable[None] | None:
        """Forget all stale results; what replicas share is to be waited for."""
        purge(self.caches, invalidation)
        return None if self.shared is None else self.shared.purge(invalidation)

    def presenter_of(self, stages: ToolStages) -> Presenter | None:
        """Return the presenter that a tool's stages name."""
        return None if stages.presenter is None else self.rules.presenters.get(stages.presenter)

    def sync_of(self, tool: str, stages: ToolStages) -> StateSync:
        """Return all policies, the tool's own behind them."""
        own = stages.state_sync
        if not own.said:
            return self.rules.sync
        try:
            return self.rules.sync.with_policies([policy(tool, own.cache_control, own.invalidates)])
        except GlobInvalid:
            return self.rules.sync

    # --- plans ------------------------------------------------------------------------------------------------

    def hosted(
        self, entry: ServerSettings, tool: ToolSettings, inputs: DeclaredInputs, place: str
    ) -> ToolPlan:
        """Return the plan of a hosted tool. Problems are noted."""
        return Steps(self, entry, tool.name, entry.stages_of(tool), place).hosted(tool, inputs)

    def definition(
        self, entry: ServerSettings, tool: ToolSettings, definition: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return a hosted tool's entry of ``tools/list`` with what its stages add."""
        return self._decorated(entry, entry.stages_of(tool), definition)

    def concerns(self, entry: ServerSettings) -> bool:
        """Tell whether any tool of an upstream may have a plan, or a description that its server did not give."""
        sync = self.rules.sync
        configured = entry.stages or sync.policies or sync.default is not None
        return entry.upstream.kind.needs is not None and bool(configured)

    def check(self, entry: ServerSettings, place: str) -> None:
        """Compile the stages of every glob once, so that what is wrong with them is known at start."""
        for glob, stages in entry.stages.items():
            where = f"{place}.stages.{glob}"
            if stages.limits.timeout is not None:
                with self.loading.judging(f"{where}.limits.timeout", ValueError):
                    raise ValueError(
                        "is for hosted tools; tool_defaults.tool_call_timeout_seconds is for others: the stages "
                        "around them have so long, and the upstream may be silent for so long"
                    )
            Steps(self, entry, glob, stages, where).proxied(UNKNOWN, doubtful=False)

    def proxied(self, entry: ServerSettings, tool: str, known: Known) -> ToolPlan | None:
        """Return the plan of an upstream's tool; None for a tool without stages."""
        stages = entry.stages_for(tool)
        doubtful = _doubtful(entry, tool)
        if not stages.said and not doubtful and self.rules.sync.policy_for(entry.id, tool) is None:
            return None
        return Steps(self, entry, tool, stages, "").proxied(known, doubtful=doubtful)

    def decorate(self, entry: ServerSettings, definition: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a tool's entry of an upstream's list with what its stages add, which may be nothing."""
        return self._decorated(entry, entry.stages_for(str(definition["name"])), definition)

    def _decorated(
        self, entry: ServerSettings, stages: ToolStages, definition: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        presenter = self.presenter_of(stages)
        if presenter is not None or stages.mappers.output is not None:
            # What leaves is another shape than the tool promises, and clients refuse what breaks a promise.
            definition = {key: value for key, value in definition.items() if key != "outputSchema"}
        if stages.large_results is not None and isinstance(definition.get("outputSchema"), dict):
            definition = {**definition, "outputSchema": shortenable(definition["outputSchema"])}
        if presenter is not None:
            definition = definition_with_select(definition, presenter)
        sync = self.sync_of(str(definition["name"]), stages)
        return definition_with_cache_control(definition, sync, entry.id)


class Steps:
    """The steps of one tool. ``place`` is where the settings speak of it, for problems."""

    def __init__(
        self, compiler: PlanCompiler, entry: ServerSettings, tool: str, stages: ToolStages, place: str
    ) -> None:
        self._structured = entry.upstream.kind.needs is not None
        self._compiler = compiler
        self._loading = compiler.loading
        self._entry = entry
        self._tool = tool
        self._stages = stages
        self._place = place
        self._presenter = compiler.presenter_of(stages)
        errors = compiler.settings.errors_for(entry, stages)
        self._style = ErrorStyle(errors.mode, errors.expose)
        self._log = compiler.loading.log.bind(server=entry.id)

    def hosted(self, tool: ToolSettings, inputs: DeclaredInputs) -> ToolPlan:
        """Return the plan of a hosted tool, whose arguments are always checked."""
        steps = [*self._for_all(serial=tool.destructive, rows=tool.rows), self._coercing(inputs)]
        return self._plan("script" if tool.handler is not None else "statement", steps)

    def proxied(self, known: Known, *, doubtful: bool) -> ToolPlan:
        """Return the plan of an upstream's tool; a ``doubtful`` name has to be the very name of a tool."""
        steps = list(self._for_all(serial=False, rows=False))
        if doubtful:
            steps.append(Step(Slot.RESOLVE, "by its very name", NameStage(self._tool, known.listed)))
        if self._stages.validated or self._selects:
            steps.append(self._validating(known))
        cache = self._stages.cache
        enabled = self._entry.tools.cache.enabled if cache.enabled is None else cache.enabled
        # Only of the tools that the settings name.
        if cache.said and enabled:
            steps.append(self._caching(known.read_only))
        return self._plan("proxied", steps)

    def _plan(self, kind: Kind, steps: list[Step]) -> ToolPlan:
        large, egress = self._stages.large_results, self._stages.limits.egress
        if large is not None and egress is not None:
            # The relay keeps to it, behind the artifacts. So no answer may come by another way, as that of a task.
            steps.append(Step(Slot.LARGE_RESULTS, "before the limit of what leaves", _unchanged))
            egress = None
        return ToolPlan(
            self._tool,
            kind,
            steps,
            self._style,
            egress=egress,
            observing=self._compiler.observing,
            log=self._log,
        )

    def _failures(self, stage: Stage) -> CodeFailures:
        return CodeFailures(stage, self._tool, self._style.expose, self._log)

    @property
    def _selects(self) -> bool:
        return self._presenter is not None and self._presenter.select_schema is not None

    def _for_all(self, *, serial: bool, rows: bool) -> Iterator[Step]:
        """Yield the steps that any tool may have; their slots say in which order they run."""
        yield from self._context()
        yield from self._auth()
        yield from self._limits(serial)
        yield from self._state_sync()
        yield from self._presenting()
        yield from self._mappers(rows)
        yield from self._middleware()

    # --- slots ------------------------------------------------------------------------------------------------

    def _context(self) -> Iterator[Step]:
        factory = self._compiler.settings.context.factory
        if factory is None:
            return
        with self._loading.judging("context.factory", ScriptInvalid):
            function = self._loading.function(factory, least=1, most=1)
            yield Step(Slot.CONTEXT, factory, ContextStage(function, self._failures("context")))

    def _auth(self) -> Iterator[Step]:
        auth = self._stages.auth
        if auth is None:
            return
        with self._loading.judging(f"{self._place}.auth", ScriptInvalid, ValueError):
            plugin = self._authenticator(auth.plugin, auth.policy)
            if isinstance(plugin, ApiKey) and plugin.keyless:
                self._log.warning(
                    "no call of this tool can pass: its api_key plugin has no key", tool=self._tool
                )
            run = AuthStage(self._tool, plugin, self._style.expose, self._log)
            yield Step(Slot.AUTH, plugin.name, run)

    def _authenticator(self, plugin: str, policy: Mapping[str, Any]) -> Authenticator:
        if plugin in BUILT_IN:
            return self._compiler.plugins.built_in(plugin, policy)
        return Custom(self._loading.function(plugin, least=1, most=2), policy)

    def _limits(self, serial: bool) -> Iterator[Step]:
        rate, concurrency = self._stages.limits.rate, self._stages.limits.concurrency
        if rate is not None:
            key_of, shared = rate_key(rate.key), self._compiler.shared
            counted: Rate
            if rate.shared and shared is not None:
                limit = rate.max, rate.window
                counted = SharedRate(self._entry.id, self._tool, limit, key_of, shared.spend)
            else:
                counted = Rate(self._tool, rate.max, rate.window, key_of, time.monotonic)
            yield Step(Slot.LIMITS, f"{rate.max} calls in {rate.window:g} s for each {rate.key}", counted)
        if serial:
            yield Step(
                Slot.LIMITS, "one call at a time, as it is destructive", Concurrency(self._tool, 1, None)
            )
        if concurrency is not None:
            most, queue = concurrency.max_active, concurrency.max_queue
            run = Concurrency(self._tool, most, queue)
            yield Step(Slot.LIMITS, f"{most} call{'' if most == 1 else 's'} at once, {queue} may wait", run)

    def _mappers(self, rows: bool) -> Iterator[Step]:
        mappers = self._stages.mappers
        if mappers.output is not None:
            with self._loading.judging(f"{self._place}.mappers.output", ScriptInvalid):
                code = self._loading.script(mappers.output)
                failures = self._failures("output_transform")
                run = OutputMapperStage(code, failures, rows=rows, whole=self._structured)
                yield Step(Slot.OUTPUT_TRANSFORM, mappers.output, run)
        if mappers.input is not None:
            with self._loading.judging(f"{self._place}.mappers.input", ScriptInvalid):
                mapper = InputMapperStage(
                    self._loading.script(mappers.input), self._failures("input_transform")
                )
                yield Step(Slot.INPUT_TRANSFORM, mappers.input, mapper)

    def _coercing(self, inputs: DeclaredInputs) -> Step:
        run = CoercionStage(
            self._tool,
            inputs,
            selects=self._selects,
            in_thread=self._loading.in_thread,
        )
        count = len(inputs.each)
        return Step(Slot.VALIDATE, f"{count} input{'' if count == 1 else 's'}, strictly", run)

    def _validating(self, known: Known) -> Step:
        schema: Schema = known.schema if self._stages.validated else _unknown
        detail = "by the upstream's schema, strictly" if self._stages.validated else "takes _select"
        run = ValidationStage(self._tool, schema, self._compiler.checks, selects=self._selects)
        return Step(Slot.VALIDATE, detail, run)

    def _middleware(self) -> Iterator[Step]:
        for index, reference in enumerate(self._stages.middleware):
            with self._loading.judging(f"{self._place}.middleware[{index}]", ScriptInvalid, ValueError):
                function = self._loading.function(reference, least=1, most=3)
                run = Middleware(function, self._failures("middleware"), structured=self._structured)
                yield Step(Slot.MIDDLEWARE, reference, run, run.part)

    def _caching(self, read_only: ReadOnly) -> Step:
        stage = self._stages.cache
        words = stage.vary
        if words is None:
            # An upstream may answer each session from a state of its own.
            words = ["identity", "session"] if self._stages.auth is not None else ["session"]
            # It may know its users by what is passed on, and modern clients of one principal share their scope.
            heads = self._entry.upstream.client_headers
            words += sorted({f"header:{name.lower()}" for name in (*heads.passthrough, *heads.required)})
        ttl = stage.ttl or self._entry.tools.cache.ttl
        text = f"{self._entry.id}\n{self._entry.upstream.url}\n{self._stages.model_dump_json()}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        vary = varying(words)
        if self._entry.upstream.auth.per_caller:
            vary, words = varying_by_credential(vary), [*words, "credential"]
        run = CacheStage(self._tool, self._results(shared=stage.shared), ttl, vary, read_only, digest)
        return Step(Slot.CACHE, kept_for(ttl, words), run)

    def _results(self, *, shared: bool) -> ResultFinder:
        found = self._compiler.shared_results(self._entry) if shared else None
        return found or self._compiler.cache_of(self._entry)

    def _presenting(self) -> Iterator[Step]:
        if self._presenter is None:
            return
        run = PresenterStage(
            self._tool,
            self._presenter,
            self._log,
            structured=self._structured,
            in_thread=self._loading.in_thread,
        )
        yield Step(Slot.PRESENTER, self._presenter.name, run)

    def _state_sync(self) -> Iterator[Step]:
        sync = self._compiler.sync_of(self._tool, self._stages)
        if not (sync.policies or sync.default is not None or self._stages.state_sync.said):
            return
        observer, observe = self._compiler.settings.state_sync.observer, None
        if observer is not None:
            with self._loading.judging("state_sync.observer", ScriptInvalid):
                observe = self._loading.function(observer, least=1, most=1)
        listeners = Listeners(self._compiler.purge, observe)
        run = StateSyncStage(self._entry.id, self._tool, sync, listeners, self._log)
        yield Step(Slot.STATE_SYNC, run.detail, run)


def _doubtful(entry: ServerSettings, tool: str) -> bool:
    """Tell whether other stages are set for a name that differs only in case or form."""
    read = reading(tool)
    return any(fits(tool, glob) != fits(read, reading(glob)) for glob in entry.stages)
