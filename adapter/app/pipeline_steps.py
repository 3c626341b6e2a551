"""The steps of one tool's plan, made of what the settings say."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.app.user_code import Loading
from adapter.hosted.scripts.references import ScriptInvalid
from adapter.pipeline.auth.auth_stage import ApiKey, Authenticating, Authenticator, Custom, fingerprint
from adapter.pipeline.auth.plugins import BUILT_IN, Plugins
from adapter.pipeline.cache_stage import Caches, Caching, varying
from adapter.pipeline.call import PlannedCall, PlanStage
from adapter.pipeline.failures import ErrorStyle
from adapter.pipeline.limits_stage import Concurrency, Rate, Serial, rate_key
from adapter.pipeline.mappers_stage import InputMapping, OutputMapping
from adapter.pipeline.middleware_stage import Gathering, Middleware
from adapter.pipeline.plan import Kind, Step, ToolPlan
from adapter.pipeline.presenter_stage import Presenting
from adapter.pipeline.result_cache import ResultCache
from adapter.pipeline.schema_checks import SchemaChecks
from adapter.pipeline.state_sync_stage import Syncing
from adapter.pipeline.tracing import Observing
from adapter.rules.presenters.presenters import Presenter
from adapter.rules.presenters.state_sync import Invalidation, StateSync, policy
from adapter.rules.text.globs import GlobInvalid
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings
from adapter.settings.servers.stages import ToolStages

ReadOnly = Callable[[PlannedCall], Awaitable[bool]]


@dataclass(slots=True)
class Materials:
    """The materials that plans are made of. Whatever cannot be made is noted as a problem of ``loading``."""

    settings: Settings
    loading: Loading
    plugins: Plugins
    presenters: Mapping[str, Presenter]
    sync: StateSync
    checks: SchemaChecks
    log: FilteringBoundLogger
    observing: Observing | None = None
    caches: Caches = field(default_factory=Caches)

    def cache_of(self, entry: ServerSettings) -> ResultCache:
        """The results of one server's tools."""
        try:
            return self.caches[entry.id]
        except KeyError:
            self.caches.add(entry.id, ResultCache(entry.tools.cache.max_bytes, time.monotonic))
            return self.caches[entry.id]

    def presenter_of(self, stages: ToolStages) -> Presenter | None:
        return None if stages.presenter is None else self.presenters.get(stages.presenter)

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


class Steps:
    """Those of one tool. ``place`` is where the settings speak of it, for problems."""

    def __init__(
        self, materials: Materials, entry: ServerSettings, tool: str, stages: ToolStages, place: str
    ) -> None:
        self._structured = entry.upstream.transport != "hosted"
        self._materials = materials
        self._loading = materials.loading
        self._entry = entry
        self._tool = tool
        self._stages = stages
        self._place = place
        errors = materials.settings.errors_for(entry, stages)
        self._style = ErrorStyle(errors.mode, errors.expose)
        self._log = materials.log.bind(server=entry.id)

    def plan(self, kind: Kind, steps: list[Step]) -> ToolPlan:
        egress = self._stages.limits.egress
        return ToolPlan(
            self._tool,
            kind,
            steps,
            self._style,
            egress=egress,
            observing=self._materials.observing,
            log=self._log,
        )

    def before(self, *, serial: bool) -> list[Step]:
        """The steps that decide who gets in, and how many."""
        steps: list[Step] = []
        factory = self._materials.settings.context.factory
        if factory is not None:
            with self._loading.judging("context.factory", ScriptInvalid):
                function = self._loading.function(factory, least=1, most=1)
                run = Gathering(self._tool, function, self._style.expose, self._log)
                steps.append(Step(2, "context", factory, run))
        auth = self._stages.auth
        if auth is not None:
            with self._loading.judging(f"{self._place}.auth", ScriptInvalid, ValueError):
                plugin = self._authenticator(auth.plugin, auth.policy)
                if isinstance(plugin, ApiKey) and plugin.keyless:
                    self._log.warning(
                        "no call of this tool can pass: its api_key plugin has no key", tool=self._tool
                    )
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
        """The steps that change the answer, the last one first, and those that change the arguments."""
        steps: list[Step] = []
        materials = self._materials
        sync = materials.sync_of(self._tool, self._stages)
        if sync.policies or sync.default is not None or self._stages.state_sync.said:
            steps.append(
                Step(
                    12, "state_sync", _detail(sync, self._entry.id, self._tool), self._syncing(sync), "after"
                )
            )
        if presenter is not None:
            shown = Presenting(
                self._tool,
                presenter,
                self._log,
                structured=self._structured,
                max_steps=self._materials.settings.validation.max_steps,
                in_thread=self._loading.in_thread,
            )
            steps.append(Step(11, "presenter", presenter.name, shown, "after"))
        mappers = self._stages.mappers
        expose = self._style.expose
        if mappers.output is not None:
            with self._loading.judging(f"{self._place}.mappers.output", ScriptInvalid):
                code = self._loading.script(mappers.output)
                made = OutputMapping(self._tool, code, expose, self._log, rows=rows, whole=self._structured)
                steps.append(Step(10, "output_transform", mappers.output, made, "after"))
        if mappers.input is not None:
            with self._loading.judging(f"{self._place}.mappers.input", ScriptInvalid):
                code = self._loading.script(mappers.input)
                run: PlanStage = InputMapping(self._tool, code, expose, self._log)
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
                steps.append(Step(8, "middleware", reference, run, run.part))
        return steps

    def caching(self, read_only: ReadOnly) -> Step:
        """Keeping the answers of an upstream's tool."""
        said, server = self._stages.cache, self._entry.tools.cache
        words = said.vary
        if words is None:
            # An upstream may answer each session from a state of its own.
            words = ["identity", "session"] if self._stages.auth is not None else ["session"]
            # It may know its users by what is passed on, and modern clients of one principal share their scope.
            heads = self._entry.upstream.client_headers
            words += sorted({f"header:{name.lower()}" for name in (*heads.passthrough, *heads.required)})
        ttl = said.ttl or server.ttl
        cache = self._materials.cache_of(self._entry)
        run = Caching(self._tool, cache, ttl, varying(words, fingerprint), read_only, self._digest())
        return Step(9, "cache", kept_for(ttl, words), run)

    def _digest(self) -> str:
        text = f"{self._entry.id}\n{self._entry.upstream.url}\n{self._stages.model_dump_json()}"
        return hashlib.sha256(text.encode()).hexdigest()

    def _authenticator(self, plugin: str, policy: Mapping[str, Any]) -> Authenticator:
        if plugin in BUILT_IN:
            return self._materials.plugins.built_in(plugin, policy)
        return Custom(self._loading.function(plugin, least=1, most=2), policy)

    def _syncing(self, sync: StateSync) -> Syncing:
        observer = self._materials.settings.state_sync.observer
        observe = None
        if observer is not None:
            with self._loading.judging("state_sync.observer", ScriptInvalid):
                observe = self._loading.function(observer, least=1, most=1)
        return Syncing(self._entry.id, self._tool, sync, self._purge, _say_stale, observe, self._log)

    def _purge(self, invalidation: Invalidation) -> None:
        self._materials.caches.purge(invalidation)


async def _say_stale(call: PlannedCall, invalidation: Invalidation) -> None:
    for uri in invalidation.stale_uris():
        call.say("notifications/resources/updated", {"uri": uri})


def kept_for(ttl: float, words: Sequence[str]) -> str:
    """The text in a plan that says how results are kept."""
    return f"{ttl:g} s, apart by {', '.join(words) or 'nothing'}"


def _detail(sync: StateSync, server: str, tool: str) -> str:
    found = sync.invalidation(server, tool)
    return (
        f"invalidates {', '.join(map(str, found.patterns))}" if found is not None else "invalidates nothing"
    )
