"""The table of stages: one tuple for each method and name, in the order of the slots."""

from __future__ import annotations

import itertools

import pytest

from adapter.relay.stages import ORDER, TOOL_CALL, Call, Stage, StageEntry, StageTable
from adapter.wire.envelope import Envelope, dump, read_envelope


class Named:
    """A stage that is told from others by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    async def ask(self, call: Call) -> bytes | None:
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:
        return response


class Opening:
    """A gate that lets everything through."""

    def skips(self, scope_id: str, name: str | None) -> bool:
        return True

    async def admit(self, call: Call) -> None:
        raise AssertionError("it has nothing to do")


class Plans(Opening):
    """Plans around the tools whose names begin with "planned"."""

    def of(self, tool: str, behind: tuple[Stage, ...]) -> tuple[Stage, ...]:
        return (Named("plan"), *behind) if tool.startswith("planned") else behind


def stages(table: StageTable, method: str, **params: str) -> str:
    """The stages of a request, in their order."""
    envelope = read_envelope(dump({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    assert isinstance(envelope, Envelope)
    return " ".join(map(repr, table.stages_for(envelope)))


SLOTS = ("own", "rounds", "uploads", "artifacts")


def test_the_order_is_that_of_the_slots() -> None:
    """In whatever order the features came, and whether they stand there for one tool or for all."""
    for order in itertools.permutations(SLOTS):
        entries = [
            StageEntry("tools/call", slot, Named(slot), None if slot == "rounds" else "convert")
            for slot in order
        ]
        table = StageTable(entries)
        assert stages(table, "tools/call", name="convert") == " ".join(SLOTS)
        assert stages(table, "tools/call", name="other") == "rounds"
        assert stages(table, "tools/list") == ""


def test_a_plan_stands_around_the_stages_of_its_tool() -> None:
    """Behind the gates, and before all that touches the files of a call."""
    entry = StageEntry("tools/call", "uploads", Named("uploads"), "planned read")
    table = StageTable([entry], plans=Plans())
    assert stages(table, "tools/call", name="planned read") == "plan uploads"
    assert stages(table, "tools/call", name="planned") == "plan"
    assert stages(table, "tools/call", name="free") == ""
    assert stages(table, "prompts/get", name="planned") == ""


def test_a_stage_of_all_names_stands_around_those_of_some() -> None:
    """Also around a stage for the names that begin alike, which is found before it otherwise."""
    table = StageTable(
        [
            StageEntry("resources/read", "artifacts", Named("document"), "doc://a"),
            StageEntry("resources/read", "artifacts", Named("any"), prefix="doc://"),
            StageEntry("resources/read", "access", Named("access")),
        ]
    )
    assert stages(table, "resources/read", uri="doc://a") == "access document"
    assert stages(table, "resources/read", uri="doc://b") == "access any"
    assert stages(table, "resources/read", uri="up://a") == "access"
    assert stages(table, "resources/read") == "access"


def test_gates_stand_in_the_order_of_their_slots() -> None:
    """Code mode puts the call in its place, then the guard judges it; what was given up is the plans' to hear of."""
    unfold, plans = Opening(), Plans()
    table = StageTable(unfold=unfold, plans=plans)
    assert table.gates == {"tools/call": (unfold,), "notifications/cancelled": (plans,)}
    assert TOOL_CALL[:5] == ("unfold", "access", "guard", "large", "plan")
    assert table.guards and not table.empty


def test_a_server_without_stages_is_piped() -> None:
    """Neither is anything of it read, nor do its upstream and the adapter have to agree on how to read."""
    table = StageTable()
    assert table.empty and not table.guards and not table.gates


def test_a_slot_that_a_method_does_not_have_is_refused() -> None:
    """A feature that is put in the wrong place is found when the adapter is built."""
    with pytest.raises(KeyError, match="guard"):
        StageTable([StageEntry("resources/list", "guard", Named("guard"))])
    with pytest.raises(KeyError, match="own"):
        StageTable([StageEntry("prompts/list", "own", Named("own"))])
    with pytest.raises(KeyError, match="logging/setLevel"):
        StageTable([StageEntry("logging/setLevel", "own", Named("own"))])
    assert "logging/setLevel" not in ORDER
