"""Threads for scripts that are not async. One that never returns keeps its thread, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from adapter.hosted.scripts.references import ScriptFailed


@contextlib.contextmanager
def contained(what: str) -> Iterator[None]:
    """Raises ScriptFailed for what the body raises beside exceptions: in a task it would end the adapter, or look as
    if the call had been cancelled. ``what`` is what the code is called in the sentence.

    A cancellation of the task itself passes, and so does the end of a coroutine that nobody runs any more.
    """
    try:
        yield
    except (Exception, GeneratorExit):
        raise
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ScriptFailed(f"{what} cancelled itself") from cancelled
    except SystemExit as left:
        raise ScriptFailed(f"{what} called sys.exit()") from left
    except BaseException as error:
        raise ScriptFailed(f"{what} raised {type(error).__name__}") from error


IDLE_AT_MOST = 8
"""Threads that are kept for the next call; a thread costs a tenth of a millisecond to start."""


@dataclass(eq=False, slots=True)
class _Job:
    run: Callable[[], Any]
    answer: asyncio.Future[Any]
    abandoned: bool = False


class Workers:
    """Not a ThreadPoolExecutor: that one's threads are waited for when the process ends, also those that loop.

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
        given = _Job(lambda: context.run(job), loop.create_future())
        worker = self._idle.pop() if self._idle else _Worker(loop, self._settle)
        worker.jobs.put(given)
        try:
            return await given.answer
        except asyncio.CancelledError:
            if not given.answer.done() or given.answer.cancelled():
                given.abandoned = True
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
