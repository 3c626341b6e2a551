"""The user's own code as stages see it: loaded and callable, wherever it runs; no stage knows a path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

Tell = Callable[[float, str | None], Awaitable[None]]
"""Told of the code's progress: percent of 100, and a sentence or None."""


class Code(Protocol):
    """A script that is given a payload: a mapper or a handler, in process or in a process of its own."""

    @property
    def reference(self) -> str:
        """As the configuration writes it."""

    async def call(self, payload: Any, context: Any, timeout: float | None, tell: Tell | None = None) -> Any:
        """What it returns, within ``timeout`` seconds.

        Raises TimeoutError when it was given up, ToolUserError, and whatever else the code raises. If the caller is
        cancelled the code is too, as far as that can be.
        """


class Function(Protocol):
    """A function of the user's in this process, called with what the stage has for it."""

    @property
    def reference(self) -> str:
        """As the configuration writes it."""

    @property
    def parameters(self) -> int:
        """How many arguments it takes by position."""

    @property
    def plain(self) -> Callable[..., Any]:
        """The bare function, for those who call it directly."""

    async def __call__(self, *arguments: Any) -> Any:
        """What it returns: awaited where it is async, else run in a thread under the caller's context variables.

        Raises whatever the function raises.
        """
