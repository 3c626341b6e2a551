"""The servers that are child processes, made of what the settings declare."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from adapter.settings.root import Settings
from adapter.settings.section import Problem
from adapter.settings.servers.server import ServerSettings, UpstreamSettings
from adapter.upstream.local.upstream import LocalUpstream
from adapter.upstream.port import ProcessUse
from adapter.upstream.stdio.child import ChildLimits, ChildProcess, ChildSpec
from adapter.upstream.stdio.conversation import ConversationTerms
from adapter.upstream.stdio.environment import child_environment
from adapter.upstream.stdio.processes import ProcessLimits
from adapter.upstream.stdio.server import ProcessMode, StdioServer
from adapter.upstream.stdio.start_failures import missing_program
from adapter.upstream.stdio.supervisor import Supervisor


class StdioUpstreams:
    """Makes upstreams over stdio. One supervisor starts the processes of all of them."""

    def __init__(self, log: FilteringBoundLogger, environ: Mapping[str, str] = os.environ) -> None:
        self._log = log
        self._environ = environ
        self._supervisor = Supervisor(log)
        self._servers: dict[str, StdioServer] = {}

    def upstream(self, settings: Settings, entry: ServerSettings) -> LocalUpstream[StdioServer]:
        """The upstream of one entry of ``servers``."""
        upstream = entry.upstream
        log = self._log.bind(server=entry.id)
        spec = self._spec(upstream, settings.core.upstream.max_answer_bytes)
        server = StdioServer(
            ConversationTerms(entry.id, upstream.start_timeout_seconds),
            ProcessMode(upstream.process),
            ProcessLimits(
                upstream.max_processes,
                upstream.idle_ttl_seconds,
            ),
            lambda owner: ChildProcess.start(self._supervisor, spec, owner, log),
            log,
        )
        self._servers[entry.id] = server
        return LocalUpstream(server)

    def use_of(self, server_id: str) -> ProcessUse | None:
        """The processes of a server, None for one that is reached otherwise."""
        server = self._servers.get(server_id)
        return None if server is None else server.use

    async def close(self) -> None:
        """End every process that is left."""
        await self._supervisor.close()

    def _spec(self, upstream: UpstreamSettings, line_bytes: int) -> ChildSpec:
        assert upstream.command is not None, "settings refuse a stdio server without a command"
        return ChildSpec(
            (upstream.command, *upstream.args),
            _environment(upstream, self._environ),
            None if upstream.cwd is None else str(upstream.cwd),
            ChildLimits(line_bytes=line_bytes, stop_grace_seconds=upstream.stop_grace_seconds),
        )


def missing_programs(settings: Settings, environ: Mapping[str, str] = os.environ) -> Iterator[Problem]:
    """Find the programs of servers that are not on this machine."""
    for index, entry in enumerate(settings.servers):
        upstream = entry.upstream
        if upstream.transport == "stdio" and upstream.command is not None:
            cwd = str(upstream.cwd or Path.cwd())
            sentence = missing_program(upstream.command, _environment(upstream, environ), cwd)
            if sentence is not None:
                yield Problem(f"servers[{index}].upstream.command", sentence)


def _environment(upstream: UpstreamSettings, environ: Mapping[str, str]) -> dict[str, str]:
    return child_environment(environ, upstream.inherit_env, upstream.env)
