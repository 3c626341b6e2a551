"""The parts that judge catalogues: policies, pins and the gate of every server's calls."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from adapter.app.access.tool_policies import Decorate, earlier_forms, policies_of, shape_of, wrapped_tools
from adapter.app.base import Base, SessionStack
from adapter.app.files import FileSecrets
from adapter.errors import AdapterError, StoreUnavailable
from adapter.relay.cleanup import CleanupTask
from adapter.relay.server import Server as RelayServer
from adapter.relay.sessions.upstream_sessions import close_kept
from adapter.relay.stages import StageEntry, StageTable
from adapter.relay.tools.baselines import Baselines
from adapter.relay.tools.catalogue_cache import CatalogueCache, CatalogueListener, CatalogueTeller
from adapter.relay.tools.catalogue_judge import JudgeRuntime
from adapter.relay.tools.catalogue_reader import ToolDefinitions
from adapter.relay.tools.pins import Pins
from adapter.relay.tools.tool_guard import ToolGuard
from adapter.relay.tools.tool_lists import ToolLists
from adapter.rules.access.sessions import SessionRecord
from adapter.rules.tools.catalogue import Catalogue, PinRule, of_pinned
from adapter.rules.tools.lock_file import LockError, read_lock
from adapter.rules.tools.visibility import (
    hides,
)
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError
from adapter.settings.servers.policies import AccessEntry
from adapter.settings.servers.server import ServerSettings

if TYPE_CHECKING:
    from adapter.app.hosted import HostedTools
    from adapter.app.pipeline import PlanCompiler
    from adapter.relay.call.access_stages import AccessGate
    from adapter.relay.call.planned import Plans
    from adapter.relay.tools.code_mode import CodeMode

STAGES_TIMEOUT = 60.0
"""Seconds that the stages around an upstream's tool have where that may be silent for ever."""

FORGET_AFTER = 0.25
"""Seconds after which the pins of sessions that ended are taken away, in one go."""


class ToolGuards:
    """Puts a guard before every server's tools, and keeps the pins of sessions as long as the sessions last."""

    def __init__(
        self, base: Base, sessions: SessionStack, files: FileSecrets, plans: HostedTools | None
    ) -> None:
        store = base.store
        self._base = base
        self._sessions = sessions
        self._files = files
        self._planning = None if plans is None else plans.planning
        self.locks = locks(base.settings)
        """The baselines of ``tools_lock`` files, by server."""
        self._pins = Pins(store, base.clock)
        self._ended: list[str] = []
        """Ids of scopes whose pins are still to be taken away."""
        self._of_server: dict[str, Baselines] = {}
        self._caches: dict[str, CatalogueCache] = {}
        """Those that hear of other processes."""
        self._pinned: dict[str, CatalogueCache] = {}
        base.by_server += [self._of_server, self._caches, self._pinned]
        self._is_shared = store.shared
        if store.shared:
            store.listeners.append(CatalogueListener(self._caches, self._pinned))
        self.pin_review: Mapping[str, Baselines] = self._of_server
        sessions.sessions.on_end.append(self.end_session)
        base.on_loss.append(self.store_lost)
        base.tasks.append(CleanupTask("pins", self.tidy))

    async def end_session(self, key: str) -> None:
        """Delete the pins of a session that has ended for good, soon and together with those of others."""
        scope = self._sessions.scopes.of_session_key(key)
        for baselines in self._of_server.values():
            baselines.cache.end(scope.id)
        if not self._ended:
            self._base.background.run(self._forget_ended())
        self._ended.append(scope.id)

    async def _forget_ended(self) -> None:
        await asyncio.sleep(FORGET_AFTER)
        ended, self._ended = self._ended, []
        # What fails here, or is cut off by the end of the process, the cleanup finds.
        with contextlib.suppress(StoreUnavailable):
            await asyncio.gather(
                *(
                    each.forget(scope_id, unknown=self._is_shared)
                    for each in self._of_server.values()
                    for scope_id in ended
                    if scope_id in each.cache.pins or (self._is_shared and each.pinning.mode != "off")
                )
            )

    def store_lost(self) -> None:
        """Write down again, when they are used next, what the store has lost."""
        self._pins.store_lost()
        for baselines in self._of_server.values():
            baselines.cache.store_lost()

    async def tidy(self) -> None:
        """Delete the pins that an earlier process left. Raises StoreUnavailable."""
        for server, scope_id in await self._pins.tidy(self._sessions.scopes.gone):
            if server in self._of_server:
                cache = self._of_server[server].cache
                cache.end(scope_id)
                cache.pins.pop(scope_id, None)

    def tables(self, given: Mapping[str, StageTable]) -> Callable[[ServerSettings], StageTable]:
        """Return the function that gives the stages of a server: those ``given`` by its id, else what is configured."""

        def stages_of(entry: ServerSettings) -> StageTable:
            self._judge(entry)
            return given.get(entry.id) or self._whole_table(entry)

        return stages_of

    def _judge(self, entry: ServerSettings) -> None:
        """Keep the pins of a server's tools, and have its cache hear of other processes and tell them of changes."""
        baselines = self._of_server[entry.id] = self._baselines(entry)
        if not self._is_shared:
            return
        cache = self._caches[entry.id] = baselines.cache
        cache.tell = CatalogueTeller(self._base.store, entry.id)
        if baselines.pinning.mode != "off":
            self._pinned[entry.id] = cache

    def _whole_table(self, entry: ServerSettings) -> StageTable:
        table = self._table(entry)
        if (gate := self._files.of(entry).cancelled) is not None:
            table.put_first(("notifications/cancelled",), gate)
        return table

    def _table(self, entry: ServerSettings) -> StageTable:
        """The stages of one server's requests: those of its files, and what its policies, pins and plans ask for."""
        files = self._files.of(entry)
        policies, own, members = policies_of(self._base.settings, entry), files.own_tools, files.members
        folds = self._base.settings.code_mode_for(entry)
        pinning = self._base.settings.pinning_for(entry)
        planning = self._planning_of(entry)
        looks = pinning.mode != "off" or not policies.change_nothing or entry.access is not None
        if not looks and not own and not folds and planning is None:
            # Whatever the upstream lists is what clients see, so nobody has to look at it.
            return StageTable(files.entries)
        attaching = files.attaching
        shape = shape_of(policies, self._decorate(entry), members.learn)
        lists = ToolLists(
            entry.id,
            shape if attaching is None else attaching.learning(shape),
            (*own, *_folding_tools(entry)) if folds else own,
            files.mirrors,
            self._base.log,
            for_host={} if attaching is None else attaching.edits,
        )
        tool_guard = ToolGuard(
            lists,
            hides(policies),
            self._of_server[entry.id],
            partial(self._revoke, entry.id),
            JudgeRuntime(time.monotonic, self._base.background, self._base.log),
            by_content=policies.sanitization.mode == "block" or entry.access is not None,
        )
        members.read = tool_guard.lists
        if attaching is not None:
            attaching.read = tool_guard.lists
            members.is_for_host = attaching.declares
            tool_guard.is_for_host = attaching.declares if attaching.parameters else None
        hides_some = bool(policies.disabled.readings or policies.wrapped)
        code_mode = _code_mode(entry, tool_guard, own) if folds else None
        offers = tool_guard.offered if folds or planning is not None else None
        large = None if files.large is None else files.large(offers)
        access = None if entry.access is None else self._access(entry, entry.access, tool_guard, folds=folds)
        table = StageTable(
            [
                *files.entries,
                *(access.entries() if access is not None else ()),
                *(code_mode.entries() if code_mode is not None else ()),
                *(large.entries() if large is not None else ()),
                StageEntry("tools/list", "guard", tool_guard),
            ],
            unfold=code_mode,
            access=access,
            guard=tool_guard,
            plans=None if planning is None else self._plans(entry, tool_guard, planning),
            refuses=hides_some or pinning.mode == "block" or policies.sanitization.mode == "block",
        )
        table.large = large
        return table

    def _planning_of(self, entry: ServerSettings) -> PlanCompiler | None:
        planning = self._planning
        return planning if planning is not None and planning.concerns(entry) else None

    def _decorate(self, entry: ServerSettings) -> Decorate | None:
        planning = self._planning_of(entry)
        return None if planning is None else partial(planning.decorate, entry)

    def _access(
        self, entry: ServerSettings, entries: Sequence[AccessEntry], tool_guard: ToolGuard, *, folds: bool
    ) -> AccessGate:
        """The rules of one server before its calls; the guard tells nobody of what they hide."""
        # Late: without rules nobody needs them.
        from adapter.app.access.rules import access_gate

        gate = access_gate(entry, entries, self._files, tool_guard, folds=folds)
        tool_guard.sees = gate.sees
        return gate

    def _baselines(self, entry: ServerSettings) -> Baselines:
        section = self._base.settings.pinning_for(entry)
        pinning = PinRule(
            mode=section.mode,
            subset=section.block_strategy == "baseline_subset",
            invalidate=section.block_error_session_action == "invalidate",
            baseline=section.baseline,
            lock=self.locks.get(entry.id),
            earlier=earlier_forms(wrapped_tools(self._base.settings, entry), self._decorate(entry)),
        )
        cache = CatalogueCache(
            self._base.settings.core.upstream_metadata_cache_ttl_seconds,
            time.monotonic,
            apart=entry.upstream.auth.per_caller,
        )
        of_principal, log = self._sessions.scopes.of_principal, self._base.log
        return Baselines(entry.id, pinning, self._pins, cache, of_principal, time.time, log)

    def _plans(self, entry: ServerSettings, tool_guard: ToolGuard, planning: PlanCompiler) -> Plans:
        """The plans of an upstream's tools, whose definitions are known by its list."""
        # Late, as everything of plans is.
        from adapter.app.pipeline import Known
        from adapter.relay.call.planned import Plans

        definitions, files = ToolDefinitions(tool_guard.offered), self._files.of(entry)
        known = Known(definitions.schema, definitions.read_only, definitions.listed)
        return Plans(
            lambda tool: planning.proxied(entry, tool, known),
            files.mirrors,
            self._sessions.notifications,
            self._base.settings.tool_defaults_for(entry).tool_call_timeout_seconds or STAGES_TIMEOUT,
            files.before_plans,
        )

    async def _revoke(self, server: str, key: str, reason: str) -> None:
        sessions = self._sessions.sessions
        record = await sessions.revoke(key, reason)
        if record is not None:
            if sessions.on_event is not None:
                sessions.on_event(server, "revoked")
            if (found := self._base.servers.get(server)) is not None:
                self._base.background.run(self._close_upstream(found, record))

    async def _close_upstream(self, server: RelayServer, record: SessionRecord) -> None:
        with contextlib.suppress(AdapterError):
            await close_kept(server, record, server.timeouts.request)


def locks(settings: Settings) -> dict[str, Catalogue]:
    """The baselines that ``tools_lock`` files set, by server. Raises SettingsError for one that cannot be read."""
    found: dict[str, Catalogue] = {}
    for place, entry in enumerate(settings.servers):
        if entry.tools_lock is None:
            continue
        try:
            locked = read_lock(entry.tools_lock.read_text(encoding="utf-8"))
        except (LockError, OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            sentence = f"{entry.tools_lock} cannot be read: {why}"
            raise SettingsError([Problem(f"servers[{place}].tools_lock", sentence)]) from None
        found[entry.id] = of_pinned(locked.get(entry.id, {}))
    return found


def _folding_tools(entry: ServerSettings) -> Sequence[dict[str, Any]]:
    """The definitions of the tools that stand for all others in code mode."""
    # Late, as below: code mode is off unless the settings ask for it.
    from adapter.rules.tools.code_mode import CodeModeNames, definitions

    return definitions(CodeModeNames(entry.id))


def _code_mode(entry: ServerSettings, tool_guard: ToolGuard, own: Sequence[dict[str, Any]]) -> CodeMode:
    from adapter.relay.tools.code_mode import CodeMode
    from adapter.rules.tools.code_mode import CodeModeNames

    return CodeMode(CodeModeNames(entry.id), tool_guard.offered, tool_guard.listed, own)
