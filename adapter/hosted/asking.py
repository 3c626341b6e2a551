"""The work of a tool that asks a database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.hosted.connectors.port import ConnectorFailed, QueryFailed, QueryTimedOut, Rows
from adapter.hosted.databases import Database
from adapter.pipeline.cache import ResultCache, key_of
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import StageFailed
from adapter.pipeline.outcome import Outcome
from adapter.pipeline.tracing import CACHE
from adapter.rules.exposure import Expose, exposed
from adapter.rules.outcomes import as_result
from adapter.rules.statements import Bound, EnvironmentFailed, Statement, SubstitutionFailed, bind, reads

TRUNCATED_KEY = "adapter/truncated"
"""The member of a result's ``_meta`` that says that there were more rows than were read, and how many those are."""


class Keeping(NamedTuple):
    """Where results are kept, for how many seconds, and what of a call they may differ by beside its arguments."""

    cache: ResultCache
    ttl: float
    differs: Callable[[PlannedCall], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Asking:
    """Runs ``statement`` for one call, within ``timeout`` seconds. ``keeping`` is None where nothing is kept."""

    tool: str
    statement: Statement
    database: Database
    timeout: float
    keeping: Keeping | None
    expose: Expose
    log: FilteringBoundLogger

    async def __call__(self, call: PlannedCall) -> Outcome:
        """See Work: the rows as compact JSON in one text."""
        rows = await self._rows(self._bound(call.arguments), call)
        meta = {TRUNCATED_KEY: {"max_rows": self.database.max_rows}} if rows.truncated else None
        return Outcome.of(as_result(rows.rows), meta)

    def _bound(self, values: Mapping[str, Any]) -> Bound:
        try:
            return bind(self.statement, values)
        except EnvironmentFailed as failed:
            raise StageFailed("environment", f"tool '{self.tool}': {failed}") from None
        except SubstitutionFailed as failed:
            raise StageFailed("substitution", str(failed)) from None

    async def _rows(self, bound: Bound, call: PlannedCall) -> Rows:
        try:
            if self.keeping is None or not reads(self.statement):
                return await self.database.run(bound, self.timeout)
            # Of one statement of one tool only the text and the values differ from call to call.
            key = key_of(self.tool, bound.text, list(bound.values), list(self.keeping.differs(call)))
            found = await self.keeping.cache.find(
                key, self.tool, self.keeping.ttl, lambda: self.database.run(bound, self.timeout)
            )
            call.notes[CACHE] = "hit" if found.hit else "miss"
            rows: Rows = found.value
            return rows
        except QueryTimedOut as late:
            raise StageFailed("connector", f"{_FAILED}: failed to execute query: {late}", "timeout") from None
        except (QueryFailed, ConnectorFailed) as failed:
            self.log.warning("a statement failed", tool=self.tool, why=exposed(failed))
            self.log.debug("where the statement failed", tool=self.tool, exc_info=True)
            raise StageFailed("connector", self._told(failed)) from None

    def _told(self, failed: QueryFailed | ConnectorFailed) -> str:
        told = exposed(failed, expose=self.expose)
        if self.expose == "safe":
            return told
        return f"{_FAILED}: {told if isinstance(failed, ConnectorFailed) else f'failed to execute query: {told}'}"


_FAILED = "tool execution failed"
