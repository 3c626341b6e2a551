"""The scripts of a configuration, each loaded into the runtime it is meant for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from structlog.typing import FilteringBoundLogger

from adapter.hosted.scripts.inprocess import InProcessScript, arity_of, function_of
from adapter.hosted.scripts.references import Modules, Reference, Script, ScriptInvalid, resolve, stamp_of
from adapter.hosted.scripts.subprocesses import Confinement, SubprocessScript
from adapter.hosted.scripts.worker_threads import Workers, contained
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.code import CodeFailures
from adapter.pipeline.failures import Outcome
from adapter.rules.results.exposure import Expose
from adapter.rules.results.outcomes import Response, Result, as_result, as_rows


class LoadedFunction:
    """A pipeline.code.Function out of a file.

    ``parameters`` is as many of ``most`` as it takes. Raises ScriptInvalid when the file cannot be imported, has no
    such function, or that cannot be called with ``least`` to ``most`` arguments.
    """

    def __init__(
        self, reference: Reference, workers: Workers, modules: Modules, *, least: int, most: int
    ) -> None:
        self.reference = reference.text
        self._path = reference.path
        self._stamp = stamp_of(reference.path)
        self.plain: Callable[..., Any] = function_of(modules.of(reference), reference)
        self.parameters = _taken(self.plain, reference, least, most)
        self._workers = workers

    def __repr__(self) -> str:
        return f"<LoadedFunction {self.reference!r} of {self.parameters}>"

    def stale(self) -> bool:
        """Tell whether its file is another than when it was loaded, or gone."""
        return stamp_of(self._path) != self._stamp

    async def __call__(self, *arguments: Any) -> Any:
        """See Function."""
        with contained("the function"):
            if inspect.iscoroutinefunction(self.plain):
                return await self.plain(*arguments)
            value = await self._workers.run(lambda: self.plain(*arguments))
            return await value if inspect.isawaitable(value) else value


def load_function(
    reference: str,
    base: Path,
    project: Path | None,
    workers: Workers,
    modules: Modules,
    *,
    least: int,
    most: int,
) -> LoadedFunction:
    """The function that ``reference`` names, as ``references.resolve`` finds it.

    It has to take ``least`` to ``most`` arguments by position. Raises ScriptInvalid.
    """
    return LoadedFunction(resolve(reference, base, project), workers, modules, least=least, most=most)


def _taken(function: Callable[..., Any], reference: Reference, least: int, most: int) -> int:
    """Return the number of arguments that it takes, of ``most``."""
    needed, possible = arity_of(function)
    taken = most if possible is None else min(possible, most)
    if taken < least or needed > most:
        wanted = str(most) if least == most else f"{least} to {most}"
        raise ScriptInvalid(f"{reference.text!r}: the function must take {wanted} arguments.")
    return taken


@dataclass(frozen=True, slots=True)
class Handling:
    """Calls ``script`` for a call of ``tool``, within ``timeout`` seconds; None: until the call's own end.

    ``rows``: what it returns becomes a list of objects, unless it is an answer already.
    """

    tool: str
    script: Script
    timeout: float | None
    expose: Expose
    log: FilteringBoundLogger
    rows: bool = False
    _failures: CodeFailures = field(init=False)

    def __post_init__(self) -> None:
        failures = CodeFailures("handler", self.tool, self.expose, self.log)
        object.__setattr__(self, "_failures", failures)

    async def __call__(self, call: PlannedCall) -> Outcome:
        """See Work: what the script returns."""
        payload = {"inputs": dict(call.arguments), "tool": self.tool}
        try:
            value = await self.script.call(payload, call.context, self.timeout, call.progress)
            rows = self.rows and not isinstance(value, Result | Response)
            return Outcome.of(as_result(as_rows(value) if rows else value))
        except Exception as error:
            raise self._failures.of(call, error) from None


Runtime = Literal["inprocess", "subprocess"]


class Scripts:
    """Loads scripts and holds what they share: threads in process, and how a subprocess is confined."""

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

    def __repr__(self) -> str:
        return f"<Scripts: {self.leftover} calls left over>"

    @property
    def leftover(self) -> int:
        """Calls of scripts in process that were given up and whose threads have not ended."""
        return self._workers.leftover

    @property
    def modules(self) -> Modules:
        """The files that were run."""
        return self._modules

    @property
    def workers(self) -> Workers:
        """The threads in which plain functions run."""
        return self._workers

    def load(self, reference: str, base: Path, runtime: Runtime = "inprocess") -> Script:
        """The script that ``reference`` names, as ``references.resolve`` finds it. Raises ScriptInvalid.

        In process its file is run here, and once for all that is loaded from it while it stays the same.
        """
        found = resolve(reference, base, self._project)
        if runtime == "subprocess":
            return SubprocessScript(found, self._confinement, self._log)
        return InProcessScript(found, self._workers, self._modules)

    def close(self) -> None:
        """Let go of the threads."""
        self._workers.close()
