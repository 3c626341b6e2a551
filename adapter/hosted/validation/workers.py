"""Processes that check values too large for the event loop: started when they are needed, ended when they are idle.

Each has a thread that waits for it, so any loop may ask. They are clean interpreters, not forks, because the adapter
has threads; they read from a pipe of the adapter's and end with it, however it ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from adapter.errors import LimitReached
from adapter.hosted.validation.process import STARTING, ProcessFailed, ValidationLimits, ValidationProcess
from adapter.hosted.validation.worker import LENGTHS
from adapter.pipeline.schema_checks import CheckOwner, CheckVerdict
from adapter.wire.envelope import dump

FAILED = "The value cannot be checked now: the worker process has failed."


@dataclass(slots=True)
class _Check:
    owner: CheckOwner
    request: bytes
    verdict: Future[CheckVerdict] = field(default_factory=Future)


class ValidationWorkers:
    """See Elsewhere. Where there are several processes, each server has one check at a time."""

    def __init__(self, limits: ValidationLimits, log: FilteringBoundLogger) -> None:
        self._limits = limits
        self._log = log
        self._changed = threading.Condition()
        self._waiting: OrderedDict[CheckOwner, deque[_Check]] = OrderedDict()
        self._served: list[str] = []
        self._threads: set[threading.Thread] = set()
        self._processes: set[ValidationProcess] = set()
        self._serving = 0
        self._idle = 0
        self._closed = False

    def __repr__(self) -> str:
        waiting = sum(map(len, self._waiting.values()))
        return f"<ValidationWorkers: {len(self._processes)} processes, {waiting} checks wait>"

    async def judge(self, owner: CheckOwner, schema: bytes, value: bytes, *, strict: bool) -> CheckVerdict:
        """See Elsewhere."""
        options = dump({"strict": strict})
        lengths = LENGTHS.pack(len(options), len(schema), len(value))
        check = _Check(owner, b"".join((lengths, options, schema, value)))
        self._add(check)
        return await asyncio.wrap_future(check.verdict)

    def close(self) -> None:
        """End all processes, also in the midst of a check; checks that wait are cancelled."""
        with self._changed:
            self._closed = True
            for checks in self._waiting.values():
                for check in checks:
                    check.verdict.cancel()
            self._waiting.clear()
            for process in self._processes:
                process.kill()
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            thread.join(STARTING)

    # --- the queue --------------------------------------------------------------------------------------------

    def _add(self, check: _Check) -> None:
        with self._changed:
            waiting = len(self._waiting.get(check.owner, ()))
            if self._closed or waiting >= self._limits.queue:
                sentence = (
                    f"{waiting} large checks for {check.owner.server} are waiting already; try again shortly."
                )
                raise LimitReached(sentence, retry_after=self._limits.seconds)
            # Threads that are idle may not have noticed yet that there is something to do.
            if sum(map(len, self._waiting.values())) >= self._idle and self._serving < self._limits.workers:
                thread = threading.Thread(target=self._serve, name="validation", daemon=True)
                thread.start()
                self._threads.add(thread)
                self._serving += 1
                self._idle += 1
            self._waiting.setdefault(check.owner, deque()).append(check)
            self._changed.notify()

    def _next(self) -> _Check | None:
        """The next check, in turns of the owners. None when none has come for long, which ends the calling thread."""
        with self._changed:
            check = self._taken()
            while check is None and not self._closed:
                is_over = not self._changed.wait(self._limits.idle)
                check = self._taken()
                if is_over:
                    break
            self._idle -= 1
            self._serving -= check is None
            return check

    def _taken(self) -> _Check | None:
        alone = self._limits.workers == 1
        owner = next((each for each in self._waiting if alone or each.server not in self._served), None)
        if owner is None:
            return None
        checks = self._waiting[owner]
        check = checks.popleft()
        self._waiting.move_to_end(owner)
        if not checks:
            del self._waiting[owner]
        self._served.append(owner.server)
        return check

    def _done(self, check: _Check) -> None:
        with self._changed:
            self._served.remove(check.owner.server)
            self._idle += 1
            self._changed.notify_all()

    # --- a thread, which has a process ------------------------------------------------------------------------

    def _serve(self) -> None:
        process: ValidationProcess | None = None
        try:
            while (check := self._next()) is not None:
                if not check.verdict.set_running_or_notify_cancel():
                    self._done(check)
                    continue
                try:
                    process = self._make(check, process)
                except Exception as error:
                    # Whoever waits for a check learns of any failure, and the next check is made.
                    if not check.verdict.done():
                        check.verdict.set_exception(error)
        finally:
            if process is not None:
                self._end(process)
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _make(self, check: _Check, process: ValidationProcess | None) -> ValidationProcess | None:
        """Make a check. Returns the process, or None where it has ended."""
        try:
            process = process or self._started()
            verdict = process.verdict(check.request)
        except ProcessFailed as failure:
            if not self._closed:
                self._log.error("a check could not be made", why=str(failure), server=check.owner.server)
            verdict = CheckVerdict(exceeded=FAILED)
        finally:
            # Before anybody hears of it: whoever asks again at once meets a thread that is free.
            self._done(check)
        check.verdict.set_result(verdict)
        if process is None or process.usable:
            return process
        self._end(process)
        return None

    def _started(self) -> ValidationProcess:
        process = ValidationProcess(self._limits)
        with self._changed:
            self._processes.add(process)
            if self._closed:
                process.kill()
        try:
            process.wait_until_ready()
        except ProcessFailed:
            self._end(process)
            raise
        return process

    def _end(self, process: ValidationProcess) -> None:
        with self._changed:
            self._processes.discard(process)
        process.end()
