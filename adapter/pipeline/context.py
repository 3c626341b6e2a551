"""The part of a call that the user's own code may know, beside its payload."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from adapter.rules.access.principals import Caller

_BARRED = frozenset(("__proto__", "constructor", "prototype"))


class Signal:
    """Tells any thread whether the call was given up: by its client, its deadline or the end of the adapter."""

    def __init__(self) -> None:
        self._aborted = False
        self._waiting: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<Signal: {'aborted' if self._aborted else 'going on'}>"

    @property
    def aborted(self) -> bool:
        return self._aborted

    def abort(self) -> None:
        """Give the call up; on the event loop only. Harmless when done twice."""
        self._aborted = True
        if self._waiting is not None:
            self._waiting.set()

    async def wait(self) -> None:
        """Return when the call is given up."""
        if self._waiting is None:
            self._waiting = asyncio.Event()
        if self._aborted:
            self._waiting.set()
        await self._waiting.wait()


class Headers(dict[str, str]):
    """A caller's header fields by name in any spelling, but for the adapter's own token and the session's id; its own
    keys are in lower case."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller.told_fields())

    def __repr__(self) -> str:
        # Values are credentials more often than not.
        return f"<Headers: {', '.join(self)}>"

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class View(dict[str, Any]):
    """A mapping whose members are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name!r} here") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class AuthRequest(View):
    """The request behind a call: ``tool, server, entrance, headers, principal``."""

    @classmethod
    def of(cls, server: str, tool: str, caller: Caller) -> AuthRequest:
        return cls(
            tool=tool,
            server=server,
            entrance=caller.entrance,
            headers=Headers(caller),
            principal=caller.principal,
        )


class Context(View):
    """``request`` (AuthRequest), ``signal``, ``deadline`` (Unix seconds or None), ``trace_id``, and what a context
    factory, an auth plugin (``user``) and middleware add."""

    @classmethod
    def of(cls, request: AuthRequest, deadline: float | None = None) -> Context:
        return cls(request=request, signal=Signal(), deadline=deadline, trace_id=None)

    @property
    def given_up(self) -> Signal:
        """The signal, whatever somebody's code has put into its place."""
        signal = self.get("signal")
        return signal if isinstance(signal, Signal) else Signal()

    def merged(self, members: Mapping[str, Any]) -> Context:
        """A new view with these members too. Names that mean something to other languages' objects are left out."""
        added = {
            name: value for name, value in members.items() if isinstance(name, str) and name not in _BARRED
        }
        return Context({**self, **added})
