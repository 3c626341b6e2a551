"""What all parts of the adapter are built on, and what each of them contributes to the whole."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from adapter import log
from adapter.edge.http.request import Branch, LateBranches
from adapter.relay.background import BackgroundTasks
from adapter.relay.cleanup import CleanupTask
from adapter.settings.root import Settings
from adapter.state.watched import WatchedStore


class Base:
    """The settings, the store, the clock (Unix seconds), the log and the background tasks that all parts share.

    A part adds what it brings when it is built: ``branches`` are routes beside mounts and health, ``tasks`` those of
    the cleanup. ``rereads`` read from the store what is read once, and again when it may be another one; what it has
    lost, it is given back. ``on_loss`` are called when the store has lost rows.
    """

    def __init__(self, settings: Settings, store: WatchedStore) -> None:
        self.settings = settings
        self.store = store
        self.clock: Callable[[], float] = time.time
        self.log = log.get_logger("adapter")
        self.background = BackgroundTasks()
        self.branches: list[Branch | LateBranches] = []
        self.tasks: list[CleanupTask] = []
        self.rereads: list[Callable[[], Awaitable[None]]] = []
        self.on_loss: list[Callable[[], None]] = []
