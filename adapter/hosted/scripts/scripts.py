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
from adapter.hosted.scripts.references import Modules, Reference, ScriptInvalid, resolve
from adapter.hosted.scripts.subprocesses import Confinement, SubprocessScript
from adapter.pipeline.call import Code, PlannedCall
from adapter.pipeline.code_stages import CodeFailures
from adapter.pipeline.failures import Outcome
from adapter.rules.results.outcomes import Response, Result, as_result, as_rows
from adapter.rules.results.refusals import Expose
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
        parameters = arguments_taken(self.plain, least, most)
        if parameters is None:
            wanted = str(most) if least == most else f"{least} to {most}"
            raise ScriptInvalid(f"{reference.text!r}: the function must take {wanted} arguments.")
        self.parameters = parameters
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
    """Calls ``script`` for a call of ``tool``, within ``timeout`` seconds; None: until the call's own end.

    With ``rows`` the value that it returns becomes a list of objects, unless it is an answer already.
    """

    tool: str
    script: Code
    timeout: float | None
    expose: Expose
    log: FilteringBoundLogger
    rows: bool = False
    _failures: CodeFailures = field(init=False)

    def __post_init__(self) -> None:
        failures = CodeFailures("handler", self.tool, self.expose, self.log)
        object.__setattr__(self, "_failures", failures)

    async def __call__(self, call: PlannedCall) -> Outcome:
        """See Work: the value of the script as a result."""
        payload = {"inputs": dict(call.arguments), "tool": self.tool}
        try:
            value = await self.script.call(payload, call.context, self.timeout, call.client.progress)
            rows = self.rows and not isinstance(value, Result | Response)
            return Outcome.of(as_result(as_rows(value) if rows else value))
        except Exception as error:
            raise self._failures.of(call, error) from None


Runtime = Literal["inprocess", "subprocess"]


class Scripts:
    """Loads scripts and holds what they share: threads in process, and the limits of subprocesses."""

    def __init__(
        self,
        log: FilteringBoundLogger,
        *,
        project: Path | None = None,
        confinement: Confinement | None = None,
    ) -> None:
        self._log = log
        self._project = project
        self._confinement = confinement or Confinement()
        self._workers = Workers()
        self._modules = Modules()

    @property
    def leftover(self) -> int:
        """Calls of scripts in process that were given up and whose threads have not ended."""
        return self._workers.leftover

    @property
    def workers(self) -> Workers:
        """The threads in which plain functions run."""
        return self._workers

    def load(self, reference: str, base: Path, runtime: Runtime = "inprocess") -> Code:
        """The script that ``reference`` names, as ``references.resolve`` finds it. Raises ScriptInvalid.

        In process its file is run here, and once for all that is loaded from it while it stays the same.
        """
        found = resolve(reference, base, self._project)
        if runtime == "subprocess":
            return SubprocessScript(found, self._confinement, self._log)
        return InProcessScript(found, self._workers, self._modules)

    def function(self, reference: str, base: Path, *, least: int, most: int) -> LoadedFunction:
        """The function that ``reference`` names, to be called with ``least`` to ``most`` arguments by position.

        Raises ScriptInvalid.
        """
        found = resolve(reference, base, self._project)
        return LoadedFunction(found, self._workers, self._modules, least=least, most=most)

    def close(self) -> None:
        """Release the threads."""
        self._workers.close()


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
