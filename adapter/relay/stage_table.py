"""The stages of one server's requests: one tuple for each method and name, made when the adapter is built."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from adapter.relay.stages import ORDER, TOOL_CALL, CallGuard, Gate, Gates, Stage, Stages, ToolPlans
from adapter.wire.envelope import Envelope


class StageEntry(NamedTuple):
    """A stage in a slot of a method: for one name, for the names that begin with ``prefix``, or for all names."""

    method: str
    slot: str
    stage: Stage
    name: str | None = None
    prefix: str | None = None


class StageTable:
    """The stages of one server's requests.

    ``unfold`` and ``guard`` are gates of every ``tools/call``, ``plans`` has the plans around tools. ``refuses``: the
    guard may keep a tool from being listed or called.
    """

    def __init__(
        self,
        entries: Iterable[StageEntry] = (),
        *,
        unfold: Gate | None = None,
        guard: CallGuard | None = None,
        plans: ToolPlans | None = None,
        refuses: bool = False,
    ) -> None:
        self.guard = guard
        self.refuses = refuses
        self.gates = _gates({"unfold": unfold, "guard": guard}, plans)
        self._plans = plans
        self._entries = tuple(entries)
        self._of_all = self._rows({(each.method, None) for each in self._entries})
        self._of_name = self._rows(
            {(each.method, each.name) for each in self._entries if each.name is not None}
        )
        self._of_prefix: dict[str, dict[str, Stages]] = {}
        for each in self._entries:
            if each.prefix is not None:
                self._of_prefix.setdefault(each.method, {})[each.prefix] = _in_order(each.method, [each])
        reads_calls = any(each.method == "tools/call" for each in self._entries)
        # An upstream has to read a call as it was read here, where that may be refused or changed.
        self.guards = refuses or unfold is not None or plans is not None or reads_calls
        self.empty = not (self._entries or self.gates)
        """Every request is piped."""

    def __repr__(self) -> str:
        return f"<StageTable: {len(self._entries)} entries>"

    @property
    def planned(self) -> bool:
        """Tell whether tools may have plans around them."""
        return self._plans is not None

    @property
    def upstream_tools(self) -> frozenset[str]:
        """The tools of the upstream that have stages by their names, so that it has to list them."""
        calls = (each for each in self._entries if each.method == "tools/call" and each.slot != "own")
        return frozenset(each.name for each in calls if each.name is not None)

    def stages_for(self, envelope: Envelope) -> Stages:
        """The stages of a request behind its gates, in running order. Raises AdapterError for a tool without a plan
        that can be made.
        """
        method, name = envelope.method, envelope.name
        stages = self._of_name.get((method, name))
        if stages is None:
            stages = self._of_all.get((method, None), ())
        if not stages and name is not None and method in self._of_prefix:
            rows = self._of_prefix[method]
            stages = next((rows[prefix] for prefix in rows if name.startswith(prefix)), ())
        if self._plans is not None and method == "tools/call" and name is not None:
            return self._plans.of(name, stages)
        return stages

    def _rows(self, keys: Iterable[tuple[str, str | None]]) -> dict[tuple[str, str | None], Stages]:
        return {
            (method, name): _in_order(
                method, [each for each in self._entries if _concerns(each, method, name)]
            )
            for method, name in keys
        }


def _concerns(entry: StageEntry, method: str, name: str | None) -> bool:
    return entry.method == method and entry.prefix is None and entry.name in (None, name)


def _gates(of_calls: dict[str, Gate | None], plans: ToolPlans | None) -> dict[str, Gates]:
    """The gates by the method that they stand before, in running order."""
    calls = tuple(gate for slot in TOOL_CALL if (gate := of_calls.get(slot)) is not None)
    gates: dict[str, Gates] = {"tools/call": calls} if calls else {}
    if plans is not None:
        gates["notifications/cancelled"] = (plans,)
    return gates


def _in_order(method: str, entries: list[StageEntry]) -> Stages:
    """The stages of the entries in the order of their slots. Raises KeyError for a method or slot without a place."""
    places = {slot: place for place, slot in enumerate(ORDER[method])}
    return tuple(each.stage for each in sorted(entries, key=lambda each: places[each.slot]))
