"""Scripts that run in the adapter's own process: trusted code, called as the Python functions they are."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from types import ModuleType
from typing import Any, NamedTuple

from adapter.hosted.scripts.references import (
    Modules,
    Reference,
    ScriptInvalid,
    ScriptTimedOut,
    Tell,
    stamp_of,
)
from adapter.hosted.scripts.worker_threads import Workers, contained
from adapter.rules.results.outcomes import Progress

DEFAULT = "default"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class InProcessScript:
    """A Script that is a function. Raises ScriptInvalid when its file cannot be imported or has no such function.

    An async function is cancelled where it awaits; any other runs in a thread of ``workers``, and when it is given
    up goes on there until it ends by itself. A generator yields its progress; its result is what it returns, or else
    the last thing it yielded that was no progress.
    """

    def __init__(self, reference: Reference, workers: Workers, modules: Modules) -> None:
        self.reference = reference.text
        self._path = reference.path
        self._stamp = stamp_of(reference.path)
        self._function = function_of(modules.of(reference), reference)
        self._arguments = _accepted(self._function, reference)
        self._workers = workers

    def __repr__(self) -> str:
        return f"<InProcessScript {self.reference!r}>"

    def stale(self) -> bool:
        """See Script."""
        return stamp_of(self._path) != self._stamp

    async def call(self, payload: Any, context: Any, timeout: float | None, tell: Tell | None = None) -> Any:
        """See Script."""
        arguments = (payload, context)[: self._arguments]
        if timeout is None:
            with contained("the script"):
                return await self._driven(arguments, tell or _tell_nobody)
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                with contained("the script"):
                    return await self._driven(arguments, tell or _tell_nobody)
        except TimeoutError:
            if scope.expired():
                raise ScriptTimedOut(timeout) from None
            raise

    async def _driven(self, arguments: tuple[Any, ...], tell: Tell) -> Any:
        function = self._function
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            value = function(*arguments)
        else:
            value = await self._threaded(arguments, tell)
        if inspect.isawaitable(value):
            value = await value
        return await _collected(value, tell) if inspect.isasyncgen(value) else value

    async def _threaded(self, arguments: tuple[Any, ...], tell: Tell) -> Any:
        loop, stop = asyncio.get_running_loop(), threading.Event()

        def say(step: Progress) -> None:
            asyncio.run_coroutine_threadsafe(_told(tell, step), loop).result()

        def job() -> Any:
            value = self._function(*arguments)
            return _exhausted(value, say, stop) if inspect.isgenerator(value) else value

        try:
            return await self._workers.run(job)
        finally:
            stop.set()


async def _tell_nobody(percent: float, message: str | None) -> None:
    """Do nothing: nobody asked for progress."""


async def _told(tell: Tell, step: Progress) -> None:
    await tell(step.percent, step.message)


async def _collected(steps: AsyncGenerator[Any, Any], tell: Tell) -> Any:
    last = None
    try:
        async for step in steps:
            if isinstance(step, Progress):
                await _told(tell, step)
            else:
                last = step
            # A generator that waits for nothing would keep everybody else waiting, its own deadline too.
            await asyncio.sleep(0)
    finally:
        await steps.aclose()
    return last


def _exhausted(
    steps: Generator[Any, Any, Any], say: Callable[[Progress], None], stop: threading.Event
) -> Any:
    last = None
    try:
        while not stop.is_set():
            step = next(steps)
            if isinstance(step, Progress):
                say(step)
            else:
                last = step
    except StopIteration as end:
        return last if end.value is None else end.value
    finally:
        steps.close()
    return None


def function_of(module: ModuleType, reference: Reference) -> Callable[..., Any]:
    """Find the function of the module to call: the one that is named, else ``default``, else its only public function.

    Raises ScriptInvalid.
    """
    if reference.function is not None:
        found = getattr(module, reference.function, None)
        if not callable(found):
            raise ScriptInvalid(f"{reference.text!r}: the function {reference.function!r} does not exist.")
        return found  # type: ignore[no-any-return]  # callable() is all there is to know of it
    if callable(default := getattr(module, DEFAULT, None)):
        return default  # type: ignore[no-any-return]  # callable() is all there is to know of it
    own = [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    if len(own) != 1:
        raise ScriptInvalid(
            f"{reference.text!r} has {len(own)} public functions: name one as path.py#function, or default."
        )
    return own[0]


class Arity(NamedTuple):
    """The number of arguments that a function takes by position; ``most`` is None where it takes any number."""

    least: int
    most: int | None


def arity_of(function: Callable[..., Any]) -> Arity:
    """What the function's signature says; of one that has none nothing is known, so any number."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return Arity(0, None)
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    least = sum(each.default is each.empty for each in positional)
    endless = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    return Arity(least, None if endless else len(positional))


def _accepted(function: Callable[..., Any], reference: Reference) -> int:
    """Return the number of arguments that it takes, of payload and context."""
    least, most = arity_of(function)
    if most == 0 or least > 2:
        raise ScriptInvalid(f"{reference.text!r}: the function must take (payload) or (payload, context).")
    return 2 if most is None else min(most, 2)
