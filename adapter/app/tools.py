"""The parts that judge catalogues: policies, pins and the gate of every server's calls."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from structlog.typing import FilteringBoundLogger

from adapter.app.files import Filing
from adapter.app.pipeline import Known, Planning
from adapter.errors import AdapterError, StoreUnavailable
from adapter.relay.background import BackgroundTasks
from adapter.relay.call.planned import Plans
from adapter.relay.notifications import Notifications
from adapter.relay.replies import read_body
from adapter.relay.server import Server as RelayServer
from adapter.relay.sessions.scopes import Scopes
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.sessions.upstream_sessions import UpstreamSessions as SessionMapping
from adapter.relay.stages import Plan
from adapter.relay.tools.baselines import Baselines
from adapter.relay.tools.code_mode import CodeMode
from adapter.relay.tools.definitions import Definitions, ToolDefinitions
from adapter.relay.tools.pin_review import PinReview
from adapter.relay.tools.pins import Pins
from adapter.relay.tools.tool_guard import ToolGuard
from adapter.relay.tools.tool_lists import ToolLists
from adapter.rules.access.sessions import SessionRecord
from adapter.rules.files.tool_definitions import Wrapped
from adapter.rules.text.unicode import has_no_reading, reading
from adapter.rules.tools.catalogue import Catalogue, of_pinned
from adapter.rules.tools.code_mode import CodeModeNames, definitions
from adapter.rules.tools.lock_file import LockError, read_lock
from adapter.rules.tools.tool_pages import ListLimits, Shaping
from adapter.rules.tools.verdicts import Pinning
from adapter.rules.tools.visibility import Descriptions, Disabled, Policies, Sanitization, apply, is_disabled
from adapter.settings.problems import Problem, SettingsError
from adapter.settings.root import Settings
from adapter.settings.servers.file_adapters import UploadConsumer
from adapter.settings.servers.server import ServerSettings
from adapter.wire.envelope import dump, parse
from adapter.wire.spans import Drop, Edit, Insert, edit

Decorate = Callable[[Mapping[str, Any]], Mapping[str, Any]]

STAGES_TIMEOUT = 60.0
"""Seconds that the stages around an upstream's tool have where that may be silent for ever."""

FORGET_AFTER = 0.25
"""Seconds after which the pins of sessions that ended are taken away, in one go."""


@dataclass(slots=True)
class Cataloguing:
    """Puts a gate before every server's tools. ``locks`` are the baselines that files set, by server.

    ``servers`` are filled in when they are built. ``ended`` are scopes whose pins are still to be taken away.
    """

    settings: Settings
    filing: Filing
    planning: Planning
    notifications: Notifications
    pins: Pins
    scopes: Scopes
    sessions: Sessions
    upstream_sessions: SessionMapping
    background: BackgroundTasks
    locks: Mapping[str, Catalogue]
    log: FilteringBoundLogger
    servers: dict[str, RelayServer] = field(default_factory=dict)
    gates: list[ToolGuard] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    pin_review: PinReview = field(init=False)

    def __post_init__(self) -> None:
        modes = {entry.id: self.settings.pinning_for(entry).mode for entry in self.settings.servers}
        self.pin_review = PinReview(self.pins, modes, self.locks, self.log)

    async def end_session(self, key: str) -> None:
        """A session has ended for good: its pins follow it soon, with those of others that end meanwhile."""
        scope = self.scopes.of_session_key(key)
        for gate in self.gates:
            gate.forget(scope.id)
        self.pins.end(scope.id)
        if not self.ended:
            self.background.run(self._forget_ended())
        self.ended.append(scope.id)

    async def _forget_ended(self) -> None:
        await asyncio.sleep(FORGET_AFTER)
        ended, self.ended = self.ended, []
        servers = [entry.id for entry in self.settings.servers]
        # What fails here, or is cut off by the end of the process, the janitor finds.
        with contextlib.suppress(StoreUnavailable):
            await asyncio.gather(*(self.pins.forget(servers, scope_id) for scope_id in ended))

    async def tidy(self) -> None:
        """One round of the janitor: pins that an earlier process left. Raises StoreUnavailable."""
        await self.pins.tidy(self.scopes.gone)

    def guarded(self, entry: ServerSettings, plan: Plan) -> Plan:
        """The plan with what the catalogue's policies ask for."""
        policies = policies_of(self.settings, entry)
        own = self.filing.own_tools(entry)
        names = CodeModeNames(entry.id) if self.settings.code_mode_for(entry) else None
        pinning = self.settings.pinning_for(entry)
        planned = self.planning.concerns(entry)
        if pinning.mode == "off" and policies.change_nothing and not own and names is None and not planned:
            # Whatever the upstream lists is what clients see, so nobody has to look at it.
            return plan
        lists = ToolLists(
            entry.id,
            shape_of(policies, partial(self.planning.decorate, entry) if planned else None),
            own if names is None else (*own, *definitions(names)),
            self.filing.mirrors_of(entry),
            self.log,
            limits_of(self.settings),
        )
        tool_guard = ToolGuard(
            lists,
            hides(policies),
            self._baselines(entry),
            revoke=partial(self._revoke, entry.id),
            fresh_for=self.settings.core.upstream_metadata_cache_ttl_seconds,
            now=time.monotonic,
            background=self.background,
            log=self.log,
            by_content=policies.sanitization.mode == "block",
            definitions=Definitions() if names is not None or planned else None,
        )
        self.gates.append(tool_guard)
        hides_some = bool(policies.disabled.readings or policies.wrapped)
        plan = replace(
            plan,
            methods={**plan.methods, "tools/list": (tool_guard,)},
            gate=tool_guard,
            refuses=hides_some or pinning.mode == "block" or policies.sanitization.mode == "block",
        )
        if planned:
            plans = self._plans(entry, tool_guard)
            plan = replace(plan, around=plans.of, withdraw=plans.withdraw)
        return plan if names is None else CodeMode(names, tool_guard, own).around(plan)

    def _baselines(self, entry: ServerSettings) -> Baselines:
        said = self.settings.pinning_for(entry)
        pinning = Pinning(
            mode=said.mode,
            subset=said.block_strategy == "baseline_subset",
            invalidate=said.block_error_session_action == "invalidate",
            baseline=said.baseline,
            lock=self.locks.get(entry.id),
        )
        return Baselines(entry.id, pinning, self.pins, self.scopes.of_principal, time.time)

    def _plans(self, entry: ServerSettings, tool_guard: ToolGuard) -> Plans:
        """The plans of an upstream's tools, whose definitions are known by its list."""
        definitions = ToolDefinitions(tool_guard)
        known = Known(definitions.schema, definitions.read_only, definitions.listed)
        return Plans(
            lambda tool: self.planning.proxied(entry, tool, known),
            self.filing.mirrors_of(entry),
            self.notifications,
            self.settings.tool_defaults_for(entry).tool_call_timeout_seconds or STAGES_TIMEOUT,
        )

    async def _revoke(self, server: str, key: str, reason: str) -> None:
        record = await self.sessions.revoke(key, reason)
        if record is not None:
            self.background.run(self._close_upstream(self.servers[server], record))

    async def _close_upstream(self, server: RelayServer, record: SessionRecord) -> None:
        with contextlib.suppress(AdapterError):
            reply = await self.upstream_sessions.close(server, record)
            if reply is not None:
                await read_body(reply, server.timeouts.request)


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


def limits_of(settings: Settings) -> ListLimits:
    """The bounds of what is read of any server's list."""
    core = settings.core
    return ListLimits(core.max_tools, core.max_tool_list_bytes, core.max_tool_definition_bytes)


def policies_of(settings: Settings, entry: ServerSettings) -> Policies:
    """The policies for the tools of one server."""
    core = settings.core
    cleaning = settings.sanitization_for(entry)
    describing = settings.descriptions_for(entry)
    return Policies(
        sanitization=Sanitization(
            mode=cleaning.mode,
            normalize_unicode=cleaning.normalize_unicode,
            remove_invisible=cleaning.remove_invisible_characters,
            max_title=cleaning.max_tool_title_chars,
            max_description=cleaning.max_tool_description_chars,
            max_schema_text=cleaning.max_schema_text_chars,
        ),
        descriptions=Descriptions(
            mode=describing.mode,
            max_tool=describing.max_tool_description_chars,
            max_schema=describing.max_schema_description_chars,
        ),
        shorten=core.shorten_descriptions
        if entry.shorten_descriptions is None
        else entry.shorten_descriptions,
        short_words=entry.short_description_max_tokens or core.short_description_max_tokens,
        disabled=Disabled.of([*core.disabled_tools, *entry.disabled_tools]),
        wrapped=_wrapped(settings, entry),
    )


def _wrapped(settings: Settings, entry: ServerSettings) -> dict[str, Wrapped]:
    """The tools that the adapter gives files to or takes files from, by name."""
    found: dict[str, Wrapped] = {}
    for adapter in entry.adapters:
        kind: Literal["consumer", "producer"]
        if isinstance(adapter, UploadConsumer):
            active, kind, argument = settings.uploads.enabled, "consumer", adapter.file_path_argument
        else:
            active, kind = settings.artifacts.enabled and adapter.persist, "producer"
            argument = adapter.output_path_argument or ""
        for tool in adapter.tools if active else ():
            found[tool] = Wrapped(
                kind=kind,
                argument=argument or None,
                helper=f"{entry.id}_get_upload_url",
                artifact_scheme=settings.artifacts.uri_scheme,
                upload_scheme=settings.uploads.uri_scheme,
            )
    return found


def shape_of(policies: Policies, decorate: Decorate | None = None) -> Callable[[str, bytes], Shaping]:
    """Return the function that applies these policies to a definition; ``decorate`` adds what the tool's stages add."""
    hidden = hides(policies)

    def shape(name: str, definition: bytes) -> Shaping:
        if hidden(name):
            return Shaping(None)
        shaped = apply(policies, name, definition)
        if shaped is None:
            return Shaping(None, blocked=True)
        raw = shaped.raw if decorate is None else _decorated(shaped.raw, decorate)
        return Shaping(raw, shaped.cleaned)

    return shape


def _decorated(raw: bytes, decorate: Decorate) -> bytes:
    """A definition with what is added and without what is taken away; other members keep their bytes."""
    definition = parse(raw)
    made = decorate(definition)
    edits: list[Edit] = [Drop((key,)) for key in definition.keys() - made.keys()]
    edits += [Insert((key,), dump(value)) for key, value in made.items() if value is not definition.get(key)]
    return edit(raw, edits) if edits else raw


def hides(policies: Policies) -> Callable[[str], bool]:
    """Return the test whether a tool of the upstream is hidden: it is not listed and cannot be called by its name.

    A disabled tool is hidden. So is a tool whose name the upstream might take for that of a wrapped tool or of
    the helper: a call of it would get around that tool.
    """
    helpers = {rule.helper for rule in policies.wrapped.values() if rule.kind != "producer"}
    readings = {reading(name) for name in (*policies.wrapped, *helpers)}

    def hidden(name: str) -> bool:
        if is_disabled(policies, name):
            return True
        if not readings or name in policies.wrapped:
            return False
        return has_no_reading(name) or reading(name) in readings

    return hidden
