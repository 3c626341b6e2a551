"""The adapter without a listener, for an application that brings one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

from adapter.app.builder import App, build
from adapter.app.runner import awake
from adapter.edge.http.bodies import BodyTerms
from adapter.edge.router import Front
from adapter.settings.file.load import load
from adapter.settings.root import Settings

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
