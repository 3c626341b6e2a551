"""The checks of values against JSON Schemas, for all parts of the adapter together."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

if TYPE_CHECKING:
    from adapter.hosted.validation.workers import ValidationWorkers
    from adapter.pipeline.schema_checks import SchemaChecks


class SharedChecks:
    """Builds the checks for the first part that wants them. ``close`` ends the processes that they have started.

    A proxy without stages never checks a value, so the checker of schemas is imported with the checks.
    """

    def __init__(self, logger: FilteringBoundLogger) -> None:
        self._log = logger
        self._workers: ValidationWorkers | None = None

    @cached_property
    def checks(self) -> SchemaChecks:
        """The checks, which start processes when they are needed."""
        from adapter.hosted.validation.process import ValidationLimits
        from adapter.hosted.validation.workers import ValidationWorkers
        from adapter.pipeline.schema_checks import SchemaChecks

        self._workers = ValidationWorkers(ValidationLimits(), self._log)
        return SchemaChecks(self._workers, self._log)

    def close(self) -> None:
        """End the processes."""
        if self._workers is not None:
            self._workers.close()
