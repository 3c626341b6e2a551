"""A call of a hosted tool while it runs: whole JSON when it ends quietly, a stream from its first progress on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from adapter.errors import UpstreamBroken, UpstreamSilent
from adapter.hosted.answers import JSON, HostedAnswer, WholeReply, notification
from adapter.hosted.streams import EventStream
from adapter.pipeline.plan import GRACE
from adapter.upstream.port import UpstreamReply

ProgressToken = str | int | float


Overdue = Callable[[], HostedAnswer | None]
"""What a call is answered with whose time has ended; None: it is about to end by itself."""


@dataclass(eq=False, slots=True)
class RunningCall:
    """``token`` is what the client wants progress under, None where it wants none or can read no stream.

    ``finished`` is called once, when the tool has ended or was never begun.
    """

    token: ProgressToken | None
    finished: Callable[[RunningCall], None]
    _task: asyncio.Task[HostedAnswer] | None = None
    _stream: EventStream | None = None
    _settled: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _said: HostedAnswer | None = None
    _late: HostedAnswer | None = None
    _seconds: float | None = None
    _overdue: Overdue | None = None
    _alarm: asyncio.TimerHandle | None = None
    _withdrawn: bool = False
    _told: float = -1.0

    def begin(
        self,
        work: Callable[[], Awaitable[HostedAnswer]],
        seconds: float | None = None,
        overdue: Overdue | None = None,
    ) -> None:
        """Start ``work``, which answers every failure of the tool itself.

        After ``seconds`` it is cancelled, and the call is answered with what ``overdue`` gives, when the work has
        cleaned up or a moment later.
        """
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(work))
        # A task that is cancelled before its first step never runs its own ``finally``.
        self._task.add_done_callback(self._over)
        if seconds is not None:
            self._seconds, self._overdue = seconds, overdue
            self._alarm = loop.call_later(seconds, self._expire)

    async def head(self, read_timeout: float | None) -> UpstreamReply:
        """The answer as soon as its kind is known.

        Raises UpstreamSilent, and UpstreamBroken when the server closes; then, as when the caller is cancelled, the
        tool is cancelled too. A call that its client withdrew is answered with nothing, so 202.
        """
        assert self._task is not None
        # One future and a timer: asyncio.wait would cost a quarter of a call whose result was kept. A call with a limit
        # has its timer already.
        late = None
        if read_timeout is not None and (self._seconds is None or self._seconds >= read_timeout):
            late = self._settled.get_loop().call_later(read_timeout, self._settle)
        try:
            await self._settled
        except BaseException:
            self.cancel()
            raise
        finally:
            if late is not None:
                late.cancel()
        if self._stream is not None:
            return self._stream
        if self._said is not None:
            return WholeReply(self._said.status, JSON, self._said.body)
        if not self._task.done():
            self.cancel()
            raise UpstreamSilent(f"The upstream server sent nothing for {read_timeout:g} s.")
        if self._task.cancelled():
            if self._withdrawn:
                return WholeReply(202)
            raise UpstreamBroken()
        said = self._task.result()
        return WholeReply(said.status, JSON, said.body)

    def _settle(self) -> None:
        if not self._settled.done():
            self._settled.set_result(None)

    async def progress(self, percent: float, message: str | None = None) -> None:
        """See tools.Progress."""
        if self.token is None or percent <= self._told or self._task is None or self._task.done():
            return
        # "The progress value MUST increase with each notification" (both eras, "Progress").
        self._told = percent
        if self._stream is None:
            self._stream = EventStream(self.cancel)
            self._settle()
        params = {"progressToken": self.token, "progress": percent, "total": 100}
        if message is not None:
            params["message"] = message
        await self._stream.put(notification("notifications/progress", params))

    def withdraw(self) -> None:
        """Its client sent ``notifications/cancelled``: the tool is cancelled and nothing is answered."""
        self._withdrawn = True
        self.cancel()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until the tool has ended, whichever way."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _run(self, work: Callable[[], Awaitable[HostedAnswer]]) -> HostedAnswer:
        said = await work()
        if self._late is None:
            self._say(said)
        return said

    def _say(self, said: HostedAnswer) -> None:
        if self._said is not None:
            return
        if self._stream is not None:
            self._stream.end(said.body)
        self._said = said
        # Not only when the task is over, which its own loop tells in one more turn.
        self._settle()

    def _expire(self) -> None:
        """The limit: cancel the tool, and wait for it no longer than it may take to clean up."""
        assert self._overdue is not None and self._task is not None, "the alarm is set with both"
        if self._task.done():
            return
        self._late = self._overdue()
        if self._late is not None:
            self._task.cancel()
            self._alarm = self._task.get_loop().call_later(GRACE, self._say, self._late)

    def _over(self, task: asyncio.Task[HostedAnswer]) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._late is not None and not self._withdrawn:
            self._say(self._late)
        if self._stream is not None:
            self._stream.end()
        self._settle()
        if not task.cancelled():
            task.exception()
        self.finished(self)
