"""The servers that the adapter hosts itself, made of what the settings declare."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.app.pipeline import Planning
from adapter.app.pipeline_steps import kept_for
from adapter.hosted.connectors import connector_for
from adapter.hosted.connectors.port import ConnectorFailed
from adapter.hosted.scripts.references import ScriptInvalid
from adapter.hosted.scripts.scripts import Handling
from adapter.hosted.server import HostedUpstream
from adapter.hosted.statement import Asking, Database, Keeping, opened
from adapter.hosted.tools import Declaration, HostedTool, Work
from adapter.pipeline.auth.auth_stage import fingerprint
from adapter.pipeline.cache_stage import varying
from adapter.pipeline.plan import ToolPlan
from adapter.rules.calls.input_schemas import TYPES, DeclaredInputs, keywords_of
from adapter.rules.calls.inputs import Input
from adapter.rules.results.exposure import Expose
from adapter.rules.statements.statements import Statement, StatementRefused, compile_statement, reads
from adapter.settings.root import Settings
from adapter.settings.servers.hosted_tools import ToolInput, ToolSettings
from adapter.settings.servers.server import ServerSettings
from adapter.settings.validation import ConnectorSettings

CALL_TIMEOUT = 30.0
"""Seconds that a call may take whose tool does not say, unless its connector's statements may take longer."""

PROCESS_BEYOND = 1.0
"""Seconds by which a script's process may outlast the deadline of its call, which ends it before."""

SILENCE_BEYOND = 5.0
"""Seconds by which the relay waits longer than the tool may take: the tool's own sentence says more."""

_WRITES = "never, as the statement is not one that only reads"

_VARIABLE = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")


class Placed(NamedTuple):
    """A statement at ``place`` in the settings, for the database of the name ``use``."""

    place: str
    use: str
    statement: Statement
    inputs: Mapping[str, Input]


@dataclass(slots=True)
class Hosting:
    """Everything of hosted servers. ``upstreams`` are by the server's id, ``timeouts`` by that and the tool's name,
    and so are ``plans``, and in ``kept`` what becomes of the results of tools that have a cache. ``statements`` are
    all, with where the settings have them.
    """

    settings: Settings
    planning: Planning
    log: FilteringBoundLogger
    environ: Mapping[str, str]
    databases: dict[str, Database] = field(default_factory=dict)
    upstreams: dict[str, HostedUpstream] = field(default_factory=dict)
    timeouts: dict[str, dict[str, float]] = field(default_factory=dict)
    plans: dict[str, dict[str, ToolPlan]] = field(default_factory=dict)
    kept: dict[str, dict[str, str]] = field(default_factory=dict)
    statements: list[Placed] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        settings: Settings,
        planning: Planning,
        log: FilteringBoundLogger,
        environ: Mapping[str, str] = os.environ,
    ) -> Hosting:
        """Compiles every statement and loads every script; opens nothing. What cannot be is noted in the planning."""
        hosting = cls(settings, planning, log, environ)
        for index, connector in enumerate(settings.connectors):
            hosting._declare(connector, f"connectors[{index}]")
        for index, entry in enumerate(settings.servers):
            if entry.upstream.transport == "hosted":
                hosting._host(entry, f"servers[{index}].tools.define")
        return hosting

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """With its databases open and its scripts at hand. Raises ConnectorFailed."""
        try:
            async with opened(self.databases.values(), self.log):
                yield
        finally:
            self.planning.loading.close()

    def read_timeouts(self, entry: ServerSettings) -> dict[str, float | None]:
        """The tools of a server that may take longer than the relay would wait for them."""
        patience = self.settings.tool_defaults_for(entry).tool_call_timeout_seconds
        return {
            tool: timeout + SILENCE_BEYOND
            for tool, timeout in self.timeouts.get(entry.id, {}).items()
            if patience is not None and timeout + SILENCE_BEYOND > patience
        }

    # --- connectors -------------------------------------------------------------------------------------------

    def _declare(self, said: ConnectorSettings, place: str) -> None:
        observing = self.planning.materials.observing
        with self.planning.loading.judging(place, ConnectorFailed):
            made = connector_for(
                said.connector,
                said.name,
                self._filled(said.connection_string.get_secret_value()),
                {
                    name: self._filled(value) if isinstance(value, str) else value
                    for name, value in said.options.items()
                },
                base=self.settings.directory,
            )
            self.databases[said.name] = Database(
                made,
                timeout=said.timeout_seconds,
                max_rows=said.max_rows,
                required=said.required,
                tracing=None if observing is None else observing.tracing,
            )

    def _filled(self, text: str) -> str:
        """The text with its variables. Raises ConnectorFailed for one that is not set, and what is no placeholder."""

        def value(found: re.Match[str]) -> str:
            if found[1] not in self.environ:
                raise ConnectorFailed(f"the environment variable {found[1]} is not set")
            return self.environ[found[1]]

        if "{{" in _VARIABLE.sub("", text):
            raise ConnectorFailed("of placeholders a connector knows {{ env.NAME }} only")
        return _VARIABLE.sub(value, text)

    # --- tools ------------------------------------------------------------------------------------------------

    def _host(self, entry: ServerSettings, place: str) -> None:
        self.timeouts[entry.id], self.plans[entry.id] = {}, {}
        tools = [
            tool
            for index, said in enumerate(entry.tools.define)
            if (tool := self._tool(entry, said, f"{place}[{index}]")) is not None
        ]
        self.upstreams[entry.id] = HostedUpstream(
            tools,
            name=entry.id,
            version=_version(),
            log=self.log,
            unknown_tool_code=self.settings.core.errors.unknown_tool_code,
        )

    def _tool(self, entry: ServerSettings, said: ToolSettings, place: str) -> HostedTool | None:
        problems = self.planning.loading.problems
        before = len(problems)
        inputs = self._inputs(said, place)
        if inputs is None or len(problems) > before:
            return None
        expose = self.settings.errors_for(entry, entry.stages_of(said)).expose
        work: Work | None = None
        if said.handler is not None:
            with self.planning.loading.judging(f"{place}.handler", ScriptInvalid):
                work = self._handling(entry, said, said.handler, expose)
        elif said.use in self.databases:
            with self.planning.loading.judging(f"{place}.statement", StatementRefused):
                work = asking = self._asking(entry, said, inputs, self.databases[said.use], expose)
                self.statements.append(Placed(f"{place}.statement", said.use, asking.statement, inputs.each))
        plan = self.planning.hosted(entry, said, inputs, place)
        if work is None or len(problems) > before:
            return None
        self.plans[entry.id][said.name] = plan
        timeout = self.timeouts[entry.id][said.name] = self._timeout(entry, said)
        declared = Declaration(entry.id, said.name, inputs, said.title, said.description, said.annotations)
        shown = self.planning.definition(entry, said, declared.definition())
        return declared.doing(work, plan, timeout, shown)

    def _inputs(self, said: ToolSettings, place: str) -> DeclaredInputs | None:
        loading = self.planning.loading
        if said.input_schema is not None:
            with loading.judging(f"{place}.input_schema", ValueError):
                return DeclaredInputs.of_schema(said.input_schema)
            return None
        inputs = {}
        for name, one in said.inputs.items():
            with loading.judging(f"{place}.inputs.{name}", ValueError):
                inputs[name] = _input(one)
        with loading.judging(f"{place}.inputs", ValueError):
            return DeclaredInputs.of(inputs)
        return None

    def _handling(
        self, entry: ServerSettings, said: ToolSettings, reference: str, expose: Expose
    ) -> Handling:
        script = self.planning.loading.script(reference, said.runtime)
        # A process has a limit of CPU time by it. What ends a script in time is the deadline of its call.
        timeout = self._timeout(entry, said) + PROCESS_BEYOND if said.runtime == "subprocess" else None
        return Handling(said.name, script, timeout, expose, self.log.bind(server=entry.id), said.rows)

    def _asking(
        self,
        entry: ServerSettings,
        said: ToolSettings,
        inputs: DeclaredInputs,
        database: Database,
        expose: Expose,
    ) -> Asking:
        statement = compile_statement(
            said.statement or "",
            database.connector.kind,
            inputs.each,
            self.environ.get,
            textual=said.substitution == "textual",
        )
        return Asking(
            said.name,
            statement,
            database,
            entry.stages_of(said).limits.timeout or database.timeout,
            self._keeping(entry, said, statement),
            expose,
            self.log.bind(server=entry.id),
        )

    def _timeout(self, entry: ServerSettings, said: ToolSettings) -> float:
        """The seconds that a call may take, every stage included."""
        database = self.databases.get(said.use or "")
        least = CALL_TIMEOUT if database is None else max(CALL_TIMEOUT, database.timeout)
        return entry.stages_of(said).limits.timeout or least

    def _keeping(self, entry: ServerSettings, said: ToolSettings, statement: Statement) -> Keeping | None:
        """The tool's own word comes before the server's; what destroys is never kept, nor what writes."""
        stages = entry.stages_of(said)
        server, own = entry.tools.cache, stages.cache
        if not (server.enabled if own.enabled is None else own.enabled):
            return None
        kept = self.kept.setdefault(entry.id, {})
        if said.destructive or not reads(statement):
            kept[said.name] = "never, as the tool is destructive" if said.destructive else _WRITES
            return None
        words = own.vary
        if words is None:
            words = ["identity"] if stages.auth is not None else []
        ttl = own.ttl or server.ttl
        kept[said.name] = kept_for(ttl, words)
        return Keeping(self.planning.materials.cache_of(entry), ttl, varying(words, fingerprint))


def _input(said: ToolInput) -> Input:
    """Raises ValueError with a sentence."""
    kind = TYPES[said.type]
    enum = None if said.enum is None else tuple(said.enum)
    keywords = keywords_of(kind, said.keywords)
    return Input(kind, said.description, said.optional, said.default, enum, keywords)


def _version() -> str:
    try:
        return version("mcp-file-adapter")
    except PackageNotFoundError:
        return "0"
