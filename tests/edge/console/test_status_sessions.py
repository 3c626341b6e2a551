"""The sessions of all replicas, in the console of one of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.edge.console.status import MOST_READ, client_of
from tests.edge.conftest import StartUpstream
from tests.edge.consoling import AGENT, AUTH, OPERATOR, VIEWER, Shop, StartConsole, bearer, opened_console
from tests.edge.test_console_data import READ, UPLOADS, upload
from tests.state.shared import SharedMemory


async def test_sessions_and_files_of_another_replica_are_shown(
    tmp_path: Path, upstream: StartUpstream
) -> None:
    """To their owner and to operators; what is not open, or that nobody can read, is passed over."""
    shared = SharedMemory()
    settings: dict[str, Any] = {"core": {"auth": AUTH}, "server": UPLOADS, "storage": {"lock_mode": "none"}}
    async with (
        upstream(Shop(READ)) as up,
        opened_console(tmp_path, up, store=shared.replica(), **settings) as one,
        opened_console(tmp_path, up, store=shared.replica(), **settings) as other,
        one.client() as agent,
        other.client() as viewer,
        other.client() as ended,
    ):
        await agent.initialize(**bearer(AGENT))
        await viewer.initialize(**bearer(VIEWER))
        await ended.initialize(**bearer(VIEWER))
        await ended.request("DELETE", b"", **bearer(VIEWER))
        await shared.rows.put("sessions", "0" * 64, b"of another version")
        await upload(agent, AGENT)
        for front in (one, other):
            every = await front.get("/sessions", OPERATOR)
            assert sorted(each["principal"] for each in every) == ["agent", "viewer"]
            assert {tuple(each["client"].values()) for each in every} == {("raw", "1")}
            (own,) = await front.get("/sessions", AGENT)
            assert own["own"] and own["principal"] == "agent" and own["created"] <= own["last_seen"]
            held = (await front.get("/files", AGENT))["scopes"]
            assert [each["count"] for each in held] == [1] and held[0]["used"] > 0
            assert (await front.get("/files", VIEWER))["scopes"] == []


@pytest.mark.parametrize("ttl", [3600, None])
async def test_session_was_last_seen_where_it_was_used_last(console: StartConsole, ttl: float | None) -> None:
    """The time that another replica wrote counts if it is later; what is known here is not forgotten for rows."""
    shared = SharedMemory()
    limits = {"idle_ttl_seconds": ttl}
    async with console(Shop(READ), store=shared.replica(), sessions=limits) as (_, front, client):
        await client.initialize()
        (row,) = await shared.rows.scan("sessions")
        (before,) = await front.get("/sessions")
        if ttl is not None:
            assert row.due is not None
            await shared.rows.touch("sessions", {row.key: row.due + 100})
            (after,) = await front.get("/sessions")
            assert after["last_seen"] == pytest.approx(before["last_seen"] + 100, abs=5)
        assert MOST_READ > 1000


def initialize(client: Any) -> bytes:
    return json.dumps({"method": "initialize", "params": {"clientInfo": client}}).encode()


def test_a_client_is_named_as_it_names_itself() -> None:
    """In one line and bounded; what is no name is none."""
    assert client_of(initialize({"name": "Cursor", "version": "1.2"})) == ("Cursor", "1.2")
    hostile = client_of(initialize({"name": "a\u202eb\n" * 99, "version": 7}))
    assert hostile is not None and hostile.version == ""
    assert hostile.name.startswith("a\\u202eb") and len(hostile.name) <= 80
    for nameless in ({}, {"name": ""}, {"name": ["x"]}, None, "x"):
        assert client_of(initialize(nameless)) is None


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_what_is_no_initialize_names_nobody(body: bytes) -> None:
    """Whatever stands in the row: nothing is raised."""
    assert client_of(body) is None or b"clientInfo" in body
