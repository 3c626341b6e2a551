"""Scripts that run in the adapter's own process: trusted code, called as the Python functions they are.

Those that are not async run in threads (Workers). One that never returns keeps its thread, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import ModuleType
from typing import Any

from adapter.hosted.scripts.references import Modules, Reference, ScriptFailed, ScriptInvalid, ScriptTimedOut
from adapter.pipeline.call import Tell
from adapter.rules.results.outcomes import Progress

DEFAULT = "default"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class InProcessScript:
    """Code that is a function. Raises ScriptInvalid when its file cannot be imported or has no such function.

    An async function is cancelled where it awaits; any other runs in a thread of ``workers``, and when it is given
    up goes on there until it ends by itself. A generator yields its progress; its result is what it returns, or else
    the last thing it yielded that was no progress.
    """

    def __init__(self, reference: Reference, workers: Workers, modules: Modules) -> None:
        self.reference = reference.text
        self._function = function_of(modules.of(reference), reference)
        wanted = "(payload) or (payload, context)"
        self._arguments = arguments_taken(self._function, reference, 1, 2, wanted)
        self._workers = workers
        self._is_async = inspect.iscoroutinefunction(self._function) or inspect.isasyncgenfunction(
            self._function
        )

    async def call(self, payload: Any, context: Any, timeout: float | None, tell: Tell | None = None) -> Any:
        """See Code. Raises ScriptTimedOut, ScriptFailed, and any exception of the script."""
        arguments = (payload, context)[: self._arguments]
        tell = tell or _tell_nobody
        if timeout is None:
            with Contained("the script"):
                return await self._driven(arguments, tell)
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                # Inside of the scope, which cancels the task and has to see that it did.
                with Contained("the script"):
                    return await self._driven(arguments, tell)
        except TimeoutError:
            if scope.expired():
                raise ScriptTimedOut(timeout) from None
            raise

    async def _driven(self, arguments: tuple[Any, ...], tell: Tell) -> Any:
        if self._is_async:
            value = self._function(*arguments)
        else:
            value = await self._threaded(arguments, tell)
        if inspect.isawaitable(value):
            value = await value
        return await _collected(value, tell) if inspect.isasyncgen(value) else value

    async def _threaded(self, arguments: tuple[Any, ...], tell: Tell) -> Any:
        loop, stop = asyncio.get_running_loop(), threading.Event()

        def say(step: Progress) -> None:
            asyncio.run_coroutine_threadsafe(_report(tell, step), loop).result()

        def job() -> Any:
            value = self._function(*arguments)
            return _exhausted(value, say, stop) if inspect.isgenerator(value) else value

        try:
            return await self._workers.run(job)
        finally:
            stop.set()


async def _tell_nobody(percent: float, message: str | None) -> None:
    """Ignore a progress, where the caller wants none."""


async def _report(tell: Tell, step: Progress) -> None:
    await tell(step.percent, step.message)


async def _collected(steps: AsyncGenerator[Any, Any], tell: Tell) -> Any:
    last = None
    try:
        async for step in steps:
            if isinstance(step, Progress):
                await tell(step.percent, step.message)
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
    """The function of the module to call: the one that is named, else ``default``, else its only public function.

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


def arguments_taken(
    function: Callable[..., Any], reference: Reference, least: int, most: int, wanted: str
) -> int:
    """The number of arguments, of ``most``, that a function takes by position; one without a signature takes any.

    Raises ScriptInvalid for one that cannot be called with ``least`` to ``most``, which are ``wanted`` in words.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return most
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    needed = sum(each.default is each.empty for each in positional)
    endless = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    taken = most if endless else min(len(positional), most)
    if taken < least or needed > most:
        raise ScriptInvalid(f"{reference.text!r}: the function must take {wanted}.")
    return taken


class Contained:
    """Raises ScriptFailed in place of what its body raises beside exceptions: that would end the adapter, or look as if
    the call had been cancelled. ``what`` names the code in the sentence.

    A cancellation of the task itself passes, and so does the end of a coroutine that nobody runs any more.
    """

    # Not made by contextlib: each call of a script enters one, and that costs three times as much.
    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        if raised is None or isinstance(raised, Exception | GeneratorExit):
            return
        if isinstance(raised, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is None or task.cancelling():
                return
            raise ScriptFailed(f"{self._what} cancelled itself") from raised
        if isinstance(raised, SystemExit):
            raise ScriptFailed(f"{self._what} called sys.exit()") from raised
        raise ScriptFailed(f"{self._what} raised {type(raised).__name__}") from raised


IDLE_AT_MOST = 8
"""Threads that are kept for the next call; a thread costs a tenth of a millisecond to start."""


@dataclass(eq=False, slots=True)
class _Job:
    run: Callable[[], Any]
    answer: asyncio.Future[Any]
    abandoned: bool = False


class Workers:
    """Threads for jobs, used again. A ThreadPoolExecutor would wait for its threads when the process ends, also for
    those that loop.

    Everything but the jobs themselves happens in the event loop's thread. With ``most_left_over`` jobs that never
    ended no new one is begun, or a script that hangs would take thread after thread.
    """

    def __init__(self, most_left_over: int = 100) -> None:
        self._most_left_over = most_left_over
        self._idle: list[_Worker] = []
        self._closed = False
        self.leftover = 0

    def __repr__(self) -> str:
        return f"<Workers: {len(self._idle)} idle, {self.leftover} left over>"

    async def run(self, job: Callable[[], Any]) -> Any:
        """Run ``job`` in a thread and return what it returns, under the caller's context variables.

        Raises ScriptFailed where too many are left over. If the caller is cancelled, the thread goes on by itself and
        is counted in ``leftover`` until it ends.
        """
        if self.leftover >= self._most_left_over:
            raise ScriptFailed("too many abandoned calls of scripts are still running")
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        request = _Job(lambda: context.run(job), loop.create_future())
        worker = self._idle.pop() if self._idle else _Worker(loop, self._settle)
        worker.jobs.put(request)
        try:
            return await request.answer
        except asyncio.CancelledError:
            if not request.answer.done() or request.answer.cancelled():
                request.abandoned = True
                self.leftover += 1
            raise

    def close(self) -> None:
        """Let the idle threads end; those at work end with their jobs, or with the process."""
        self._closed = True
        while self._idle:
            self._idle.pop().jobs.put(None)

    def _settle(self, worker: _Worker, job: _Job, value: Any, error: BaseException | None) -> None:
        if job.abandoned:
            self.leftover -= 1
        elif not job.answer.done():
            if error is None:
                job.answer.set_result(value)
            else:
                job.answer.set_exception(error)
        if self._closed or len(self._idle) >= IDLE_AT_MOST:
            worker.jobs.put(None)
        else:
            self._idle.append(worker)


Settle = Callable[["_Worker", _Job, Any, BaseException | None], None]


@dataclass(eq=False, slots=True)
class _Worker:
    loop: asyncio.AbstractEventLoop
    settle: Settle
    jobs: SimpleQueue[_Job | None] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._work, name="script", daemon=True).start()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            value: Any = None
            error: BaseException | None = None
            try:
                value = job.run()
            except StopIteration as stopped:
                # A future refuses it, because it would end whatever waits in the middle of a loop.
                error = RuntimeError("the script raised StopIteration")
                error.__cause__ = stopped
            except BaseException as raised:
                error = raised
            try:
                self.loop.call_soon_threadsafe(self.settle, self, job, value, error)
            except RuntimeError:
                # The loop has been closed meanwhile, so nobody will ever ask this thread again.
                return
            del job, value, error
