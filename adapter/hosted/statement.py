"""The work of a tool that asks a database."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.hosted.connectors.port import (
    Connector,
    ConnectorFailed,
    QueryFailed,
    QueryTimedOut,
    Rows,
    not_opened,
)
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import Outcome, StageFailed, Unread
from adapter.pipeline.result_cache import Lookup, ResultFinder, ResultForm, key_of
from adapter.pipeline.tracing import CACHE
from adapter.rules.calls.tracing import Tracer
from adapter.rules.results.outcomes import text_block
from adapter.rules.results.refusals import Expose, exposed
from adapter.rules.statements.statements import (
    Bound,
    EnvironmentFailed,
    Statement,
    SubstitutionFailed,
    bind,
)
from adapter.rules.text.json_values import NotJson, compact, require_size


@dataclass(eq=False, slots=True)
class Database:
    """A connector and its limits: ``timeout`` in seconds for a statement, and for the connection at start.

    One that is not ``required`` may be away: then each statement tries to open it. With ``tracing`` each statement is a
    span.
    """

    connector: Connector
    timeout: float = field(kw_only=True)
    max_rows: int = field(kw_only=True)
    required: bool = field(kw_only=True)
    tracing: Tracer | None = field(default=None, kw_only=True)
    _opening: asyncio.Task[None] | None = field(default=None, init=False)
    _is_open: bool = field(default=False, init=False)
    _closed: bool = field(default=False, init=False)

    def __repr__(self) -> str:
        return f"<Database {self.connector.name!r} ({self.connector.kind})>"

    async def open(self) -> None:
        """Connect, if that has not happened; calls at the same time wait for one attempt. Raises ConnectorFailed."""
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
            raise not_opened(self.connector, f"no answer within {self.timeout:g} s") from None
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
        if self.tracing is None:
            return await self._run(bound, timeout)
        kind = self.connector.kind
        attributes = {"connector.type": kind, "connector.name": self.connector.name}
        with self.tracing.span(f"connector.{kind}", attributes):
            return await self._run(bound, timeout)

    async def _run(self, bound: Bound, timeout: float) -> Rows:
        if not self._is_open:
            await self.open()
        return await self.connector.run(bound, timeout=timeout, max_rows=self.max_rows)

    async def close(self) -> None:
        """Close its connections, and end an attempt to get one; it is not opened again."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        if self._is_open:
            self._is_open = False
            await self.connector.close()


@contextlib.asynccontextmanager
async def opened(databases: Iterable[Database], log: FilteringBoundLogger) -> AsyncIterator[None]:
    """Open all databases at once, and close them when the block ends.

    Raises ConnectorFailed, with every reason, when a required one cannot be opened; then none is open.
    """
    databases_in_order = list(databases)
    try:
        tried = await asyncio.gather(*(one.open() for one in databases_in_order), return_exceptions=True)
        reasons = []
        for database, failure in zip(databases_in_order, tried, strict=True):
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
        await asyncio.gather(*(one.close() for one in databases_in_order))


TRUNCATED_KEY = "adapter/truncated"
"""The member of a result's ``_meta`` that says that there were more rows than were read, and how many those are."""


class ResultKeeper(NamedTuple):
    """The cache of results, its seconds, and the values of a call that they differ by beside its arguments.

    ``digest`` is that of the configuration, where others share the cache.
    """

    cache: ResultFinder
    ttl: float
    differs: Callable[[PlannedCall], Sequence[Any]]
    digest: str = ""


@dataclass(frozen=True, slots=True)
class StatementRunner:
    """Runs ``statement`` for one call, within ``timeout`` seconds. ``keeping`` is None where nothing is cached."""

    tool: str
    statement: Statement
    database: Database
    timeout: float
    keeping: ResultKeeper | None
    expose: Expose
    log: FilteringBoundLogger

    async def __call__(self, call: PlannedCall) -> Outcome:
        """See Work: the rows as compact JSON in one text."""
        bound = self._bound(call.arguments)
        try:
            if self.keeping is None or not self.statement.reads:
                return self._outcome(await self._answer(bound))
            return self._outcome(await self._cached(bound, self.keeping, call))
        except QueryTimedOut as late:
            raise StageFailed("connector", f"{_FAILED}: failed to execute query: {late}", "timeout") from None
        except NotJson as failed:
            raise StageFailed("connector", f"{_FAILED}: {failed}") from None
        except (QueryFailed, ConnectorFailed) as failed:
            self.log.warning("a statement failed", tool=self.tool, why=exposed(failed))
            self.log.debug("where the statement failed", tool=self.tool, exc_info=True)
            raise StageFailed("connector", self._sentence(failed)) from None

    def _bound(self, values: Mapping[str, Any]) -> Bound:
        try:
            return bind(self.statement, values)
        except EnvironmentFailed as failed:
            raise StageFailed("environment", f"tool '{self.tool}': {failed}") from None
        except SubstitutionFailed as failed:
            raise StageFailed("substitution", str(failed)) from None

    async def _cached(self, bound: Bound, keeping: ResultKeeper, call: PlannedCall) -> _Answer:
        # Of one statement of one tool only the text and the values differ from call to call.
        key = key_of(keeping.digest, self.tool, bound.text, bound.values, keeping.differs(call))
        # Its own timeout ends a statement. One that fails for one caller would fail for all who wait.
        lookup = Lookup(key, self.tool, keeping.ttl, ANSWERS, patience=None, shares_failure=True)
        found = await keeping.cache.find(lookup, partial(self._answer, bound))
        call.notes[CACHE] = "hit" if found.hit else "miss"
        answer: _Answer = found.value
        return answer

    async def _answer(self, bound: Bound) -> _Answer:
        found = await self.database.run(bound, self.timeout)
        require_size(found.rows)
        return _Answer(compact(found.rows), found.truncated)

    def _outcome(self, answer: _Answer) -> Outcome:
        """The outcome of one call, with rows that are its own."""
        result: dict[str, Any] = {"content": [text_block(answer.text)], "isError": False}
        if answer.truncated:
            result["_meta"] = {TRUNCATED_KEY: {"max_rows": self.database.max_rows}}
        # Not by the faster reader, to which long integers are floats.
        return Outcome(result, Unread(partial(json.loads, answer.text)))

    def _sentence(self, failed: QueryFailed | ConnectorFailed) -> str:
        sentence = exposed(failed, expose=self.expose)
        if self.expose == "safe":
            return sentence
        query = "" if isinstance(failed, ConnectorFailed) else "failed to execute query: "
        return f"{_FAILED}: {query}{sentence}"


class _Answer(NamedTuple):
    """Rows as the text that is sent; most calls need nothing else of them."""

    text: str
    truncated: bool


def _encoded(answer: _Answer) -> bytes:
    return (b"1" if answer.truncated else b"0") + answer.text.encode()


def _decoded(text: bytes) -> _Answer:
    if text[:1] not in (b"0", b"1"):
        raise ValueError("This is no answer of a statement.")
    return _Answer(text[1:].decode(), text[:1] == b"1")


ANSWERS = ResultForm(_encoded, _decoded)

_FAILED = "tool execution failed"
