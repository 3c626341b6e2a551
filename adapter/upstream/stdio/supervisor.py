"""The process that starts and ends the adapter's children, as the adapter sees it: always there when it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from structlog.typing import FilteringBoundLogger

from adapter.errors import UpstreamNotStarted
from adapter.upstream.stdio.supervisor_link import OnExit, SupervisedProcess, SupervisorLink


class Supervisor:
    """Starts the children of this adapter from one small process, which outlives the adapter to end them.

    One for the whole adapter. The process is started for the first child, and again if somebody kills it: on Linux
    the system then kills its children, and the new process ends what these had started.
    """

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._link: SupervisorLink | None = None
        self._opening = asyncio.Lock()
        self._reopening: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        children = self._link.count if self._link is not None else 0
        return f"<Supervisor: process {self.pid}, {children} children>"

    @property
    def pid(self) -> int | None:
        """The id of its process; None while there is none."""
        return self._link.pid if self._link is not None and self._link.alive else None

    async def open(self) -> None:
        """Start its process if there is none, which first ends the leftovers of adapters that were killed.

        Raises UpstreamNotStarted.
        """
        await self._opened()

    async def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        descriptors: Sequence[int],
        on_exit: OnExit,
    ) -> SupervisedProcess:
        """Start a program. The descriptors become its standard input, output and error.

        ``on_exit`` is called when the process and its group have ended. Raises StartRefused, UpstreamNotStarted, and
        ValueError for a NUL character.
        """
        return await (await self._opened()).start(argv, environment, cwd, descriptors, on_exit)

    async def close(self) -> None:
        """End every child that is left, and the process. It may be opened again."""
        async with self._opening:
            link, self._link = self._link, None
            if link is not None:
                await link.close()
        if self._reopening is not None:
            await asyncio.wait((self._reopening,))

    async def _opened(self) -> SupervisorLink:
        if self._link is not None and self._link.alive and self._link.ready.done():
            return self._link
        async with self._opening:
            if self._link is not None and not self._link.alive:
                await self._link.close()
                self._link = None
            if self._link is None:
                self._link = await self._opened_anew()
            return self._link

    async def _opened_anew(self) -> SupervisorLink:
        try:
            link = SupervisorLink(self._log)
        except OSError as error:
            raise UpstreamNotStarted(
                f"The process that starts servers cannot be started: {error.strerror}."
            ) from error
        try:
            leftovers = await asyncio.shield(link.ready)
        except asyncio.CancelledError:
            await link.close()
            raise
        if not link.alive:
            await link.close()
            raise UpstreamNotStarted(
                "The process that starts servers ended at once; its error is on standard error."
            )
        if leftovers:
            self._log.warning("ended processes whose supervisor was killed", processes=leftovers)
        link.lost.add_done_callback(self._after_loss)
        return link

    def _after_loss(self, _lost: asyncio.Future[None]) -> None:
        """Start the process again at once if somebody killed it: it ends what its children have started."""
        if self._link is not None:
            self._reopening = asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        try:
            await self.open()
        except UpstreamNotStarted as error:
            self._log.error("no server can be started", reason=error.reason)
