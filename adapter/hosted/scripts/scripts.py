"""The scripts of a configuration, each loaded into the runtime it is meant for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from structlog.typing import FilteringBoundLogger

from adapter.hosted.scripts.inprocess import Contained, InProcessScript, Workers, arguments_taken, function_of
from adapter.hosted.scripts.references import Modules, Reference, resolve
from adapter.hosted.scripts.subprocesses import Confinement, SubprocessScript
from adapter.pipeline.call import Code, PlannedCall
from adapter.pipeline.code_stages import CodeFailures
from adapter.pipeline.failures import Outcome
from adapter.rules.results.outcomes import Response, Result, as_result, as_rows
from adapter.settings.section import Problem


class LoadedFunction:
    """A ``pipeline.call.Function`` out of a file.

    ``parameters`` is the number of arguments, of ``most``, that it takes. Raises ScriptInvalid when the file cannot be
    imported, has no such function, or that cannot be called with ``least`` to ``most`` arguments.
    """

    def __init__(
        self, reference: Reference, workers: Workers, modules: Modules, *, least: int, most: int
    ) -> None:
        self.reference = reference.text
        self.plain: Callable[..., Any] = function_of(modules.of(reference), reference)
        wanted = str(most) if least == most else f"{least} to {most}"
        self.parameters = arguments_taken(self.plain, reference, least, most, f"{wanted} arguments")
        self._workers = workers

    async def __call__(self, *arguments: Any) -> Any:
        """See Function."""
        with Contained("the function"):
            if inspect.iscoroutinefunction(self.plain):
                return await self.plain(*arguments)
            value = await self._workers.run(lambda: self.plain(*arguments))
            return await value if inspect.isawaitable(value) else value


@dataclass(frozen=True, slots=True)
class ScriptHandler:
    """Calls ``script`` for a call, within ``timeout`` seconds; None: until the call's own end.

    With ``rows`` the value that it returns becomes a list of objects, unless it is an answer already.
    """

    script: Code
    timeout: float | None
    failures: CodeFailures
    rows: bool = False

    async def __call__(self, call: PlannedCall) -> Outcome:
        """See Work: the value of the script as a result."""
        payload = {"inputs": dict(call.arguments), "tool": self.failures.tool}
        try:
            value = await self.script.call(payload, call.context, self.timeout, call.client.progress)
            rows = self.rows and not isinstance(value, Result | Response)
            return Outcome.of(as_result(as_rows(value) if rows else value))
        except Exception as error:
            raise self.failures.of(call, error) from None


Runtime = Literal["inprocess", "subprocess"]


@dataclass(slots=True)
class CodeLoader:
    """Loads scripts and functions below ``base``, each once; ``confinement`` is that of processes.

    ``problems`` are the failures, with their places in the settings. ``workers`` are the threads of all plain
    functions.
    """

    base: Path
    log: FilteringBoundLogger
    confinement: Confinement = field(default_factory=Confinement)
    problems: list[Problem] = field(default_factory=list, init=False)
    workers: Workers = field(default_factory=Workers, init=False)
    _modules: Modules = field(default_factory=Modules, init=False)
    _functions: dict[tuple[str, int, int], LoadedFunction] = field(default_factory=dict, init=False)
    _scripts: dict[tuple[str, Runtime], Code] = field(default_factory=dict, init=False)

    def script(self, reference: str, runtime: Runtime = "inprocess") -> Code:
        """A script that is given a payload, in process its file is run now. Raises ScriptInvalid."""
        known = self._scripts.get((reference, runtime))
        if known is None:
            found = resolve(reference, self.base)
            known = self._scripts[reference, runtime] = (
                SubprocessScript(found, self.confinement, self.log)
                if runtime == "subprocess"
                else InProcessScript(found, self.workers, self._modules)
            )
        return known

    def function(self, reference: str, *, least: int, most: int) -> LoadedFunction:
        """A function that takes ``least`` to ``most`` arguments by position. Raises ScriptInvalid."""
        key = (reference, least, most)
        if key not in self._functions:
            found = resolve(reference, self.base)
            self._functions[key] = LoadedFunction(found, self.workers, self._modules, least=least, most=most)
        return self._functions[key]

    async def in_thread(self, job: Callable[[], Any]) -> Any:
        """See pipeline.call.InThread. Raises ScriptFailed for what would end more than its own call."""
        with Contained("the code"):
            return await self.workers.run(job)

    @contextmanager
    def judging(self, place: str, *refusals: type[Exception]) -> Iterator[None]:
        """Record a refusal that is raised inside as a problem of the settings at ``place``."""
        try:
            yield
        except refusals as error:
            self.problems.append(Problem(place, str(error)))

    def close(self) -> None:
        """Release the threads."""
        self.workers.close()
