"""The tool API over a host's own tools, with what checks their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from adapter import log
from adapter.edge.api.embedding import HandleCall, Options, RouteDef, Tools, routes
from adapter.hosted.validation.process import ValidationLimits
from adapter.hosted.validation.workers import ValidationWorkers
from adapter.pipeline.schema_checks import SchemaChecks


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
