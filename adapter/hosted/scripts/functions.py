"""Functions of the user's that stages call by themselves: middleware, context factories, what presenters ask."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adapter.hosted.scripts.inprocess import arity_of, function_of
from adapter.hosted.scripts.references import Modules, Reference, ScriptInvalid, resolve, stamp_of
from adapter.hosted.scripts.worker_threads import Workers, contained


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
        raise ScriptInvalid(f"{reference.text!r}: the function takes {wanted} arguments.")
    return taken
