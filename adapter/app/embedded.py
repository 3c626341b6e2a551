"""The adapter without a listener, for an application that brings one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

from adapter import log
from adapter.app.builder import App, build
from adapter.app.runner import awake
from adapter.edge.api.embedding import HandleCall, Options, RouteDef, Tools, routes
from adapter.edge.http.bodies import BodyTerms
from adapter.edge.router import Front
from adapter.hosted.validation.process import ValidationLimits
from adapter.hosted.validation.workers import ValidationWorkers
from adapter.pipeline.schema_checks import SchemaChecks
from adapter.settings.file.load import load
from adapter.settings.root import Settings


class HostExplorer(NamedTuple):
    """``routes`` are the page and the API; ``end`` ends at once what would otherwise end when it is idle."""

    routes: list[RouteDef]
    end: Callable[[], None]


def explorer(tools: Tools, handle_call: HandleCall, options: Options) -> HostExplorer:
    """The page and the API of these tools."""
    logger = log.get_logger("adapter.api")
    workers = ValidationWorkers(ValidationLimits(), logger)
    return HostExplorer(
        routes(tools, handle_call, logger, options, SchemaChecks(workers, logger)), workers.close
    )


Source = Settings | Path | str | Mapping[str, Any]
"""Settings, the path of their file, or what such a file would say."""


class EmbeddedAdapter(NamedTuple):
    """``front`` answers requests while ``lifetime`` is entered."""

    front: Front
    bodies: BodyTerms
    lifetime: Callable[[], AbstractAsyncContextManager[None]]


def embedded(source: Source) -> EmbeddedAdapter:
    """The adapter, built. A mapping is read without the environment. Raises SettingsError."""
    app = build(_settings(source))
    return EmbeddedAdapter(app.front, app.bodies, lambda: _lifetime(app))


def _settings(source: Source) -> Settings:
    if isinstance(source, Settings):
        return source
    if isinstance(source, Mapping):
        return load(None, overrides=source, environ={})
    return load(Path(source))


@contextlib.asynccontextmanager
async def _lifetime(app: App) -> AsyncIterator[None]:
    async with awake(app):
        try:
            yield
        finally:
            await app.front.drain(app.settings.core.shutdown_grace_seconds)
