"""The work of a tool that asks a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.hosted.connectors.port import ConnectorFailed, QueryFailed, QueryTimedOut, Rows
from adapter.hosted.databases import Database
from adapter.hosted.failures import StageFailed
from adapter.hosted.tools import ToolAnswer, ToolCall
from adapter.pipeline.cache import ResultCache, key_of
from adapter.rules.exposure import Expose, exposed
from adapter.rules.inputs import Scalar
from adapter.rules.json_values import compact
from adapter.rules.outcomes import text_block
from adapter.rules.statements import Bound, EnvironmentFailed, Statement, SubstitutionFailed, bind, reads

TRUNCATED_KEY = "adapter/truncated"
"""The member of a result's ``_meta`` that says that there were more rows than were read, and how many those are."""


class Keeping(NamedTuple):
    """Where results are kept, and for how many seconds."""

    cache: ResultCache
    ttl: float


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

    async def __call__(self, values: Mapping[str, Scalar], call: ToolCall) -> ToolAnswer:  # noqa: ARG002 (see Work)
        """See Work: the rows as compact JSON in one text."""
        rows = await self._rows(self._bound(values))
        meta = {TRUNCATED_KEY: {"max_rows": self.database.max_rows}} if rows.truncated else None
        return ToolAnswer([text_block(compact(rows.rows))], meta=meta)

    def _bound(self, values: Mapping[str, Scalar]) -> Bound:
        try:
            return bind(self.statement, values)
        except EnvironmentFailed as failed:
            raise StageFailed("environment", f"tool '{self.tool}': {failed}") from None
        except SubstitutionFailed as failed:
            raise StageFailed("substitution", str(failed)) from None

    async def _rows(self, bound: Bound) -> Rows:
        try:
            if self.keeping is None or not reads(self.statement):
                return await self.database.run(bound, self.timeout)
            # Of one statement of one tool only the text and the values differ from call to call.
            key = key_of(self.tool, bound.text, list(bound.values))
            found = await self.keeping.cache.find(
                key, self.tool, self.keeping.ttl, lambda: self.database.run(bound, self.timeout)
            )
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
