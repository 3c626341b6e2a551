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
        manager = await self._entered(request)
        try:
            result = await act()
        except BaseException as error:
            await self._leave(manager, error)
            raise
        await self._leave(manager, None)
        return result

    async def _entered(self, request: Any) -> AbstractAsyncContextManager[Any]:
        try:
            async with asyncio.timeout(self._patience):
                manager = self._hook(request)
                if not hasattr(manager, "__enter__") and hasattr(manager, "__await__"):
                    manager = await manager
                # One that is async runs in the caller's task, so what it sets is set for the call.
                entered = manager if hasattr(manager, "__aenter__") else _InThread(manager)
                await entered.__aenter__()
        except (Exception, SystemExit) as error:
            self._log.warning("the auth hook refused a call", exc_info=error)
            raise HookRefused() from error
        return entered

    async def _leave(self, manager: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await manager.__aexit__(
                    type(error) if error else None, error, getattr(error, "__traceback__", None)
                )
        except (Exception, SystemExit) as failure:
            # A generator that does not catch it raises again what was thrown in; that is no failure of the hook.
            if failure is not error:
                self._log.warning("the auth hook failed after a call", exc_info=failure)


class _InThread(AbstractAsyncContextManager[None]):
    """A context manager that may block: both its ends run in a thread, in one copy of the caller's context."""

    def __init__(self, manager: AbstractContextManager[Any]) -> None:
        self._manager = manager
        self._context = contextvars.copy_context()
        self._set: list[tuple[contextvars.ContextVar[Any], contextvars.Token[Any]]] = []

    async def __aenter__(self) -> None:
        entering = self._begun(self._manager.__enter__)
        try:
            await asyncio.shield(entering)
        finally:
            if not entering.done():
                # It may yet come in, into a call that was refused or given up.
                entering.add_done_callback(self._leave_late)
        for variable, value in self._context.items():
            if variable.get(_UNSET) is not value:
                self._set.append((variable, variable.set(value)))

    async def __aexit__(self, *raised: Any) -> None:
        while self._set:
            variable, token = self._set.pop()
            variable.reset(token)
        await asyncio.shield(self._begun(self._manager.__exit__, *raised))

    def _begun(self, step: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(None, self._context.run, _caught, step, arguments)

    def _leave_late(self, entering: asyncio.Future[Any]) -> None:
        if not entering.cancelled() and entering.exception() is None:
            leaving = self._begun(self._manager.__exit__, None, None, None)
            leaving.add_done_callback(lambda done: done.cancelled() or done.exception())


_UNSET = object()


class _Left(Exception):
    """The hook called ``sys.exit``, which in a task would end the whole process."""


def _caught(step: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return step(*arguments)
    except SystemExit as left:
        raise _Left("the hook called sys.exit()") from left
