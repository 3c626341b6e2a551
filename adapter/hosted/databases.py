"""The databases of a configuration, each with what its statements may take, opened and closed together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from structlog.typing import FilteringBoundLogger

from adapter.hosted.connectors.port import Connector, ConnectorFailed, Rows
from adapter.pipeline.tracing import Tracing
from adapter.rules.statements.statements import Bound


class Database:
    """A connector and its limits: ``timeout`` in seconds for a statement, and for the connection at start.

    One that is not ``required`` may be away: then each statement tries to open it. With ``tracing`` each statement is a
    span.
    """

    def __init__(
        self,
        connector: Connector,
        *,
        timeout: float,
        max_rows: int,
        required: bool,
        tracing: Tracing | None = None,
    ) -> None:
        self.connector = connector
        self.timeout = timeout
        self.max_rows = max_rows
        self.required = required
        self._tracing = tracing
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self._closed = False

    def __repr__(self) -> str:
        return f"<Database {self.connector.name!r} ({self.connector.kind})>"

    async def open(self) -> None:
        """Connect, if that has not happened; all who ask meanwhile wait for one attempt. Raises ConnectorFailed."""
        if self._is_open:
            return
        if self._closed:
            raise ConnectorFailed(f"connector '{self.connector.name}' is closed")
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._tried)
        # Whoever is cancelled leaves the attempt to the others; it is limited in time.
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self.timeout):
                await self.connector.open()
            self._is_open = True
        except TimeoutError:
            raise ConnectorFailed(
                f"connector '{self.connector.name}' ({self.connector.kind}): no answer within {self.timeout:g} s"
            ) from None
        finally:
            if not self._is_open:
                await self.connector.close()

    def _tried(self, attempt: asyncio.Task[None]) -> None:
        self._opening = None
        if not attempt.cancelled():
            # Of those who waited all may have left, and then nobody asks for it.
            attempt.exception()

    async def run(self, bound: Bound, timeout: float) -> Rows:
        """See Connector. Raises ConnectorFailed where it cannot be opened now, QueryFailed, QueryTimedOut."""
        if self._tracing is None:
            return await self._run(bound, timeout)
        kind = self.connector.kind
        attributes = {"connector.type": kind, "connector.name": self.connector.name}
        with self._tracing.span(f"connector.{kind}", attributes):
            return await self._run(bound, timeout)

    async def _run(self, bound: Bound, timeout: float) -> Rows:
        if not self._is_open:
            await self.open()
        return await self.connector.run(bound, timeout=timeout, max_rows=self.max_rows)

    async def close(self) -> None:
        """Let go of its connections, and of an attempt to get one; it is not opened again."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        if self._is_open:
            self._is_open = False
            await self.connector.close()


@contextlib.asynccontextmanager
async def opened(databases: Iterable[Database], log: FilteringBoundLogger) -> AsyncIterator[None]:
    """All of them, opened at once, as long as the block lasts.

    Raises ConnectorFailed, with every reason, when a required one cannot be opened; then none is open.
    """
    all_of_them = list(databases)
    try:
        tried = await asyncio.gather(*(one.open() for one in all_of_them), return_exceptions=True)
        reasons = []
        for database, failure in zip(all_of_them, tried, strict=True):
            if isinstance(failure, ConnectorFailed) and not database.required:
                log.warning("a database is away", connector=database.connector.name, why=str(failure))
            elif isinstance(failure, ConnectorFailed):
                reasons.append(str(failure))
            elif failure is not None:
                raise failure
        if reasons:
            raise ConnectorFailed("; ".join(reasons))
        yield
    finally:
        await asyncio.gather(*(one.close() for one in all_of_them))
