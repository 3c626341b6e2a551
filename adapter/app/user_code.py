"""The user's own code that the settings name, each piece loaded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.hosted.scripts.inprocess import Contained
from adapter.hosted.scripts.scripts import LoadedFunction, Runtime, Scripts
from adapter.pipeline.call import Code
from adapter.settings.section import Problem


@dataclass(slots=True)
class CodeLoader:
    """Loads scripts and functions below ``base``. ``problems`` are the failures, with their places in the settings."""

    base: Path
    log: FilteringBoundLogger
    scripts: Scripts
    problems: list[Problem] = field(default_factory=list)
    _functions: dict[tuple[str, int, int], LoadedFunction] = field(default_factory=dict)
    _scripts: dict[tuple[str, Runtime], Code] = field(default_factory=dict)

    def script(self, reference: str, runtime: Runtime = "inprocess") -> Code:
        """A script that is given a payload. Raises ScriptInvalid."""
        known = self._scripts.get((reference, runtime))
        if known is None:
            known = self._scripts[reference, runtime] = self.scripts.load(reference, self.base, runtime)
        return known

    def function(self, reference: str, *, least: int, most: int) -> LoadedFunction:
        """A function that takes ``least`` to ``most`` arguments. Raises ScriptInvalid."""
        key = (reference, least, most)
        known = self._functions.get(key)
        if known is None:
            known = self.scripts.function(reference, self.base, least=least, most=most)
            self._functions[key] = known
        return known

    def plain(self, reference: str) -> Callable[..., Any]:
        """A function that presenters call, with data and context or with data alone. Raises ScriptInvalid."""
        return self.function(reference, least=1, most=2).plain

    async def in_thread(self, job: Callable[[], Any]) -> Any:
        """See pipeline.call.InThread. Raises ScriptFailed for what would end more than its own call."""
        with Contained("the code"):
            return await self.scripts.workers.run(job)

    @contextmanager
    def judging(self, place: str, *refusals: type[Exception]) -> Iterator[None]:
        """Record a refusal that is raised inside as a problem of the settings at ``place``."""
        try:
            yield
        except refusals as error:
            self.problems.append(Problem(place, str(error)))

    def close(self) -> None:
        """Stop the threads."""
        self.scripts.close()
