"""The hook that a host puts around each call of the tool API: a context manager that refuses by raising.

What it sets in context variables is seen by the call, whether the hook is async or runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar

from structlog.typing import FilteringBoundLogger

HOOK_PATIENCE = 10.0
"""Seconds that a hook has to let a call in, and again to end after it."""

T = TypeVar("T")

Hook = Callable[[Any], Any]
"""Given the request, returns a context manager, sync or async, or something to await for one."""


class HookRefused(Exception):
    """The hook did not let the call in. The reason is in the log only."""


class AuthHook:
    """``patience`` is in seconds. A hook that is late has refused."""

    def __init__(self, hook: Hook, log: FilteringBoundLogger, patience: float = HOOK_PATIENCE) -> None:
        self._hook = hook
        self._log = log
        self._patience = patience

    async def around(self, request: Any, act: Callable[[], Awaitable[T]]) -> T:
        """Return or raise what ``act`` does, inside the hook's context, which is told of an exception.

        Raises HookRefused when the hook raises before ``act``. What the hook raises afterwards is logged: the call
        has run.
        """
        entered = await self._enter(request)
        try:
            result = await act()
        except BaseException as error:
            await self._leave(entered, error)
            raise
        await self._leave(entered, None)
        return result

    async def _enter(self, request: Any) -> _Entered:
        try:
            manager = self._hook(request)
            if not hasattr(manager, "__enter__") and hasattr(manager, "__await__"):
                async with asyncio.timeout(self._patience):
                    manager = await manager
            entered = _AsyncEntered(manager) if hasattr(manager, "__aenter__") else _SyncEntered(manager)
            await entered.enter(self._patience)
        except (Exception, SystemExit) as error:
            self._log.warning("the auth hook refused a call", exc_info=error)
            raise HookRefused() from error
        return entered

    async def _leave(self, entered: _Entered, error: BaseException | None) -> None:
        try:
            await entered.leave(error, self._patience)
        except (Exception, SystemExit) as failure:
            # A generator that does not catch it raises again what was thrown in; that is no failure of the hook.
            if failure is not error:
                self._log.warning("the auth hook failed after a call", exc_info=failure)


class _AsyncEntered:
    """An async context manager. It runs in the caller's task, so what it sets is set for the call."""

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self._manager = manager

    async def enter(self, patience: float) -> None:
        async with asyncio.timeout(patience):
            await self._manager.__aenter__()

    async def leave(self, error: BaseException | None, patience: float) -> None:
        async with asyncio.timeout(patience):
            await self._manager.__aexit__(type(error) if error else None, error, _traceback(error))


class _SyncEntered:
    """A context manager that may block: both its ends run in a thread, in one copy of the caller's context."""

    def __init__(self, manager: AbstractContextManager[Any]) -> None:
        self._manager = manager
        self._context = contextvars.copy_context()
        self._set: list[tuple[contextvars.ContextVar[Any], contextvars.Token[Any]]] = []

    async def enter(self, patience: float) -> None:
        entering = self._in_thread(self._manager.__enter__)
        try:
            await asyncio.wait({entering}, timeout=patience)
        finally:
            if not entering.done():
                # It may yet come in, into a call that was refused or given up.
                entering.add_done_callback(self._leave_late)
        if not entering.done():
            raise TimeoutError(f"the hook took longer than {patience:g} s")
        entering.result()
        for variable, value in self._context.items():
            if variable.get(_UNSET) is not value:
                self._set.append((variable, variable.set(value)))

    async def leave(self, error: BaseException | None, patience: float) -> None:
        while self._set:
            variable, token = self._set.pop()
            variable.reset(token)
        leaving = self._in_thread(
            self._manager.__exit__, type(error) if error else None, error, _traceback(error)
        )
        async with asyncio.timeout(patience):
            await asyncio.shield(leaving)

    def _in_thread(self, step: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(None, self._context.run, _caught, step, arguments)

    def _leave_late(self, entering: asyncio.Future[Any]) -> None:
        if not entering.cancelled() and entering.exception() is None:
            leaving = self._in_thread(self._manager.__exit__, None, None, None)
            leaving.add_done_callback(lambda done: done.cancelled() or done.exception())


_Entered = _AsyncEntered | _SyncEntered

_UNSET = object()


class _Left(Exception):
    """The hook called ``sys.exit``, which in a task would end the whole process."""


def _caught(step: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return step(*arguments)
    except SystemExit as left:
        raise _Left("the hook called sys.exit()") from left


def _traceback(error: BaseException | None) -> Any:
    return None if error is None else error.__traceback__
