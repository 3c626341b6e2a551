"""The viewers of the console's data, and what they may do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from adapter.edge.http.access import Guard
from adapter.errors import AdapterError
from adapter.rules.access.principals import ANONYMOUS, name_of


class OperatorsOnly(AdapterError):
    code, rpc, http = "operators_only", -32600, 403
    hint = "Only operators may do this: console.operators lists the names of their tokens."


class Viewer(NamedTuple):
    """Whoever asks. An operator sees what concerns others too, and may accept changed tools."""

    principal: str
    operator: bool

    @property
    def authenticated(self) -> bool:
        return self.principal != ANONYMOUS

    @property
    def name(self) -> str:
        return name_of(self.principal)

    @property
    def whose(self) -> str | None:
        """The principal whose affairs this viewer may see, None: everybody's."""
        return None if self.operator else self.principal

    def require_operator(self) -> None:
        """Raises OperatorsOnly."""
        if not self.operator:
            raise OperatorsOnly()


class Viewers:
    """Knows viewers by their credential. ``operators`` are names of tokens.

    Where no token is asked for, the adapter serves loopback alone, and everybody there is an operator.
    """

    def __init__(self, guard: Guard, operators: Collection[str]) -> None:
        self._guard = guard
        self._operators = frozenset(operators)

    def __repr__(self) -> str:
        return f"<Viewers: {len(self._operators)} operators>"

    def of(self, headers: Mapping[str, str]) -> Viewer:
        """Return the viewer that asks. Raises HostRefused, OriginRefused, Unauthorized."""
        self._guard.check_place(headers)
        principal, _ = self._guard.principal(headers)
        return Viewer(principal, principal == ANONYMOUS or name_of(principal) in self._operators)
