"""The servers that the adapter hosts itself, made of what the settings declare."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pydantic import SecretStr

from adapter.app.pipeline import PlanCompiler
from adapter.hosted.connectors import connector_for
from adapter.hosted.connectors.port import ConnectorFailed
from adapter.hosted.scripts.references import ScriptInvalid
from adapter.hosted.scripts.scripts import CodeLoader, ScriptHandler
from adapter.hosted.server import HostedServer, HostedTool, Served, Work, definition_of
from adapter.hosted.statement import (
    Database,
    ResultKeeper,
    StatementRunner,
    opened,
)
from adapter.pipeline.code_stages import CodeFailures
from adapter.pipeline.result_cache import kept_for, varying
from adapter.rules.calls.input_schemas import TYPES, DeclaredInputs, keywords_of
from adapter.rules.calls.inputs import Input
from adapter.rules.results.refusals import Expose
from adapter.rules.statements.statements import Statement, StatementRefused, compile_statement
from adapter.settings.pipeline import ConnectorSettings
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError
from adapter.settings.servers.hosted_tools import ToolInput, ToolSettings
from adapter.settings.servers.server import ServerSettings
from adapter.upstream.local.upstream import LocalUpstream
from adapter.version import VERSION

CALL_TIMEOUT = 30.0
"""Seconds that a call may take whose tool does not say, unless its connector's statements may take longer."""

PROCESS_BEYOND = 1.0
"""Seconds by which a script's process may outlast the deadline of its call, which ends it before."""

SILENCE_BEYOND = 5.0
"""Seconds by which the relay waits longer than the tool may take: the tool's own sentence says more."""

_VARIABLE = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")


@dataclass(slots=True)
class HostedTools:
    """The compiled settings, and everything of hosted servers: ``databases`` by the connector's name, ``servers`` by
    the server's id. Every statement is compiled and every script loaded when it is made; nothing is opened.

    Problems are noted in ``loading``, which has threads: its owner closes it, unless this is ``opened``.
    """

    planning: PlanCompiler
    environ: Mapping[str, str]
    databases: dict[str, Database] = field(default_factory=dict)
    servers: dict[str, LocalUpstream[HostedServer]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, connector in enumerate(self.settings.connectors):
            self._declare(connector, f"connectors[{index}]")
        for index, entry in enumerate(self.settings.servers):
            self.host(entry, f"servers[{index}]")

    @property
    def settings(self) -> Settings:
        """The settings of now."""
        return self.planning.settings

    @property
    def loading(self) -> CodeLoader:
        """The user's own code."""
        return self.planning.loading

    def require(self) -> None:
        """Raise SettingsError with every problem, if there is one."""
        if self.loading.problems:
            self.loading.close()
            self._refuse()

    def _refuse(self) -> NoReturn:
        # What the settings say of all tools at once is wrong once, however many tools there are.
        problems = [*dict.fromkeys(self.loading.problems)]
        self.loading.problems.clear()
        raise SettingsError(map(self.settings.traced, problems))

    def add(self, entry: ServerSettings) -> None:
        """Compile the plans of one more server, and host it if its tools run here. Raises SettingsError."""
        place = f"servers[{self.settings.servers.index(entry)}]"
        self.host(entry, place)
        if self.planning.concerns(entry):
            self.planning.check(entry, place)
        if self.loading.problems:
            self._refuse()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Keep the databases open and the scripts loaded as long as the block lasts. Raises ConnectorFailed."""
        try:
            async with opened(self.databases.values(), self.loading.log):
                yield
        finally:
            self.loading.close()

    def read_timeouts(self, entry: ServerSettings) -> dict[str, float | None]:
        """The tools of a server that may take longer than the relay would wait for them."""
        patience = self.settings.tool_defaults_for(entry).tool_call_timeout_seconds
        if patience is None or entry.id not in self.servers:
            return {}
        tools = self.servers[entry.id].server.tools
        timeouts = {name: tool.timeout + SILENCE_BEYOND for name, tool in tools.items()}
        return {name: timeout for name, timeout in timeouts.items() if timeout > patience}

    def tool(self, server: str, name: str) -> HostedTool | None:
        """The hosted tool of this name, None for any other."""
        return self.servers[server].server.tools.get(name) if server in self.servers else None

    # --- connectors -------------------------------------------------------------------------------------------

    def _declare(self, declared: ConnectorSettings, place: str) -> None:
        observing = self.planning.observing
        with self.loading.judging(place, ConnectorFailed):
            options = {
                name: self._filled(value) if isinstance(value, str) else value
                for name, value in declared.options.items()
            }
            address = self._filled(declared.connection_string.get_secret_value())
            self.databases[declared.name] = Database(
                connector_for(
                    declared.connector, declared.name, address, options, base=self.settings.directory
                ),
                timeout=declared.timeout_seconds,
                max_rows=declared.max_rows,
                required=declared.required,
                tracing=None if observing is None else observing.tracing,
            )

    def _filled(self, text: str) -> str:
        """The text with its variables filled in. Raises ConnectorFailed for one that is not set, and for any other
        placeholder.
        """

        def value(found: re.Match[str]) -> str:
            if found[1] not in self.environ:
                raise ConnectorFailed(f"the environment variable {found[1]} is not set")
            return self.environ[found[1]]

        if "{{" in _VARIABLE.sub("", text):
            raise ConnectorFailed("of placeholders a connector knows {{ env.NAME }} only")
        return _VARIABLE.sub(value, text)

    # --- tools ------------------------------------------------------------------------------------------------

    def host(self, entry: ServerSettings, place: str) -> None:
        """Make the server of an entry, if its tools run here."""
        if entry.upstream.kind.needs is not None:
            return
        declared = enumerate(entry.tools.define)
        found = (self._tool(entry, each, f"{place}.tools.define[{index}]") for index, each in declared)
        tools = [tool for tool in found if tool is not None]
        code = self.settings.core.errors.unknown_tool_code
        server = HostedServer(Served(entry.id, VERSION, unknown_tool_code=code), tools, self.loading.log)
        self.servers[entry.id] = LocalUpstream(server)

    def _tool(self, entry: ServerSettings, declared: ToolSettings, place: str) -> HostedTool | None:
        problems = self.loading.problems
        before = len(problems)
        inputs = self._inputs(declared, place)
        if inputs is None or len(problems) > before:
            return None
        expose = self.settings.core.errors.expose
        work: Work | None = None
        kept: str | None = None
        if declared.handler is not None:
            with self.loading.judging(f"{place}.handler", ScriptInvalid):
                work = self._handling(entry, declared, declared.handler, expose)
        elif declared.use in self.databases:
            with self.loading.judging(f"{place}.statement", StatementRefused):
                work, kept = self._asking(entry, declared, inputs, expose)
        plan = self.planning.hosted(entry, declared, inputs, place)
        if work is None or len(problems) > before:
            return None
        timeout = self._timeout(entry, declared)
        own = definition_of(declared.name, inputs, declared.title, declared.description, declared.annotations)
        shown = self.planning.definition(entry, declared, own)
        return HostedTool(entry.id, shown, work, plan, timeout, kept)

    def _inputs(self, declared: ToolSettings, place: str) -> DeclaredInputs | None:
        loading = self.loading
        inputs = {}
        for name, one in declared.inputs.items():
            with loading.judging(f"{place}.inputs.{name}", ValueError):
                inputs[name] = _input(one)
        with loading.judging(f"{place}.inputs", ValueError):
            return DeclaredInputs.of(inputs)
        return None

    def _handling(
        self, entry: ServerSettings, declared: ToolSettings, reference: str, expose: Expose
    ) -> ScriptHandler:
        script = self.loading.script(reference, declared.runtime)
        # A process has a limit of CPU time by it. What ends a script in time is the deadline of its call.
        timeout = (
            self._timeout(entry, declared) + PROCESS_BEYOND if declared.runtime == "subprocess" else None
        )
        failures = CodeFailures("handler", declared.name, expose, self.loading.log.bind(server=entry.id))
        return ScriptHandler(script, timeout, failures, declared.rows)

    def _asking(
        self, entry: ServerSettings, declared: ToolSettings, inputs: DeclaredInputs, expose: Expose
    ) -> tuple[StatementRunner, str | None]:
        """A statement's tool, and how its results are kept, in words. Raises StatementRefused."""
        assert declared.use is not None, "who calls this has found the database by it"
        database = self.databases[declared.use]
        statement = compile_statement(
            declared.statement or "",
            database.connector.kind,
            inputs.each,
            self.environ.get,
            textual=declared.substitution == "textual",
        )
        timeout = entry.stages_of(declared).limits.timeout or database.timeout
        keeping, kept = self._keeping(entry, declared, statement)
        log = self.loading.log.bind(server=entry.id)
        return StatementRunner(declared.name, statement, database, timeout, keeping, expose, log), kept

    def _timeout(self, entry: ServerSettings, declared: ToolSettings) -> float:
        """The seconds that a call may take, every stage included."""
        database = self.databases.get(declared.use or "")
        least = CALL_TIMEOUT if database is None else max(CALL_TIMEOUT, database.timeout)
        return entry.stages_of(declared).limits.timeout or least

    def _keeping(
        self, entry: ServerSettings, declared: ToolSettings, statement: Statement
    ) -> tuple[ResultKeeper | None, str | None]:
        """The cache of a tool's results, and how they are kept, in words; neither for a tool without a cache.

        The tool's own settings come before the server's; results of a tool that destroys or writes are never kept.
        """
        stages = entry.stages_of(declared)
        server, own = entry.tools.cache, stages.cache
        if not (server.enabled if own.enabled is None else own.enabled):
            return None, None
        if declared.destructive:
            return None, "never, as the tool is destructive"
        if not statement.reads:
            return None, "never, as the statement is not one that only reads"
        vary = own.vary
        if vary is None:
            vary = ["identity"] if stages.auth is not None else []
        ttl = own.ttl or server.ttl
        planning, differs = self.planning, varying(vary)
        if own.shared and (shared := planning.shared_results(entry)) is not None:
            return ResultKeeper(shared, ttl, differs, self._digest(declared)), kept_for(ttl, vary)
        return ResultKeeper(planning.cache_of(entry), ttl, differs), kept_for(ttl, vary)

    def _digest(self, declared: ToolSettings) -> str:
        """The digest of what a result rests on beside the call: replicas may run with other settings."""
        connector = next((each for each in self.settings.connectors if each.name == declared.use), None)
        target = "" if connector is None else json.dumps(connector.model_dump(), default=_plain)
        return hashlib.sha256(f"{declared.model_dump_json()}\n{target}".encode()).hexdigest()


def _input(declared: ToolInput) -> Input:
    """An input as it is declared. Raises ValueError with a sentence."""
    kind = TYPES[declared.type]
    enum = None if declared.enum is None else tuple(declared.enum)
    keywords = keywords_of(kind, declared.keywords)
    return Input(kind, declared.description, declared.optional, declared.default, enum, keywords)


def _plain(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
