"""Pins are of what the upstream says: other words of the adapter are no drift, nor are pins of earlier versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import orjson
import pytest

from adapter.errors import CatalogueDrifted
from adapter.relay.tools.pins import BASELINES, FIRST, PINS, SEEN
from adapter.rules.files.tool_definitions import Wrapped, once_pinned
from adapter.rules.tools.catalogue import catalogue_of
from adapter.rules.tools.definitions import Tool, read_tool
from adapter.rules.tools.drift import DriftSighting, DriftSummary
from adapter.rules.tools.visibility import Policies
from adapter.state.sqlite import MemoryStore
from adapter.wire.envelope import dump
from tests.relay.guarding import SHOOT, Guarded, Json, Shop, guarded, listed

SEND: Json = {
    "name": "send",
    "description": "Sends a file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string", "pattern": "^/"}}},
}
RULE = Wrapped("consumer", "path", "one_get_upload_url")
POLICIES = Policies(wrapped={"send": RULE})

Baseline = Literal["session", "server"]


def read(definition: bytes) -> Tool:
    tool = read_tool(definition)
    assert tool is not None
    return tool


async def pin_as_before(front: Guarded, *tools: Json) -> str:
    """Have all pins name these tools as an earlier version pinned them; return the digest."""
    sent, *others = map(dump, tools)
    *_, words = once_pinned(sent, RULE)
    catalogue = catalogue_of(map(read, (words, *others)))
    await front.pins.keep("one", catalogue)
    for table in (PINS, FIRST, SEEN):
        for row in await front.store.scan(table):
            _, *rest = orjson.loads(row.value)
            await front.store.put(table, row.key, orjson.dumps([catalogue.digest, *rest]))
    return catalogue.digest


async def digests(front: Guarded) -> set[str]:
    """The digests of all pins."""
    rows = [row for table in (PINS, FIRST, SEEN) for row in await front.store.scan(table)]
    return {orjson.loads(row.value)[0] for row in rows}


@pytest.mark.parametrize("baseline", ["session", "server"])
async def test_other_words_of_the_adapter_are_no_drift(baseline: Baseline) -> None:
    """A version that words its sentences otherwise shares pins with this one, and each shows its own words."""
    shop, store = Shop(SEND, SHOOT), MemoryStore()
    other = Policies(
        wrapped={"send": replace(RULE, upload_first="Upload to {helper} for {argument} ({scheme}).")}
    )
    async with (
        guarded(shop, store=store, baseline=baseline, policies=POLICIES) as front,
        guarded(shop, store=store, baseline=baseline, policies=other) as newer,
    ):
        session = await front.open()
        (shown, _) = await front.list(session)
        assert "To give it a local file" in shown["description"]
        (shown, _) = await newer.list(session)
        assert "Upload to one_get_upload_url for path" in shown["description"]
        await newer.call(session, "send")
        assert await digests(front) == {catalogue_of(map(read, map(dump, (SEND, SHOOT)))).digest}
        assert await newer.baselines.remembered() is None


@pytest.mark.parametrize("baseline", ["session", "server"])
async def test_pins_of_an_earlier_version_are_no_drift(baseline: Baseline) -> None:
    """They were of the adapter's words too: they stay as they are, and what was met is kept."""
    shop, store = Shop(SEND, SHOOT), MemoryStore()
    async with listed(shop, store=store, baseline=baseline, policies=POLICIES) as (front, session):
        before = await pin_as_before(front, SEND, SHOOT)
        summary = DriftSummary({"changed": 1}, "The server's tools are not those that were first seen.")
        await front.pins.drift.add("one", DriftSighting(before, "d" * 64, summary, 1.0, "a", "ann", own=True))
    async with guarded(shop, store=store, baseline=baseline, policies=POLICIES) as front:
        status = await front.baselines.status()
        assert status.drift is None
        await front.call(session, "send")
        await front.list(session)
        now = catalogue_of(map(read, map(dump, (SEND, SHOOT)))).digest
        assert await digests(front) == {before, now}
        remembered = await front.baselines.remembered()
        assert remembered is not None and [each.first.digest for each in remembered.met] == ["d" * 64]


async def test_an_accepted_pin_of_an_earlier_version_stays_accepted() -> None:
    """Operators see that nothing is to be accepted."""
    shop, store = Shop(SEND, SHOOT), MemoryStore()
    async with guarded(shop, store=store, policies=POLICIES) as front:
        await front.list(await front.open())
        before = await pin_as_before(front, SEND, SHOOT)
        await front.store.put(BASELINES, "one", orjson.dumps([before, 5.0]))
    async with guarded(shop, store=store, policies=POLICIES) as front:
        await front.list(await front.open())
        status = await front.baselines.status()
        assert status.accepted and status.since == 5.0


async def test_drift_from_a_pin_of_an_earlier_version_names_what_the_server_changed() -> None:
    """The words of the adapter are no part of the drift, which is drift all the same."""
    shop, store = Shop(SEND, SHOOT), MemoryStore()
    async with listed(shop, store=store, policies=POLICIES) as (front, session):
        await pin_as_before(front, SEND, SHOOT)
    shop.tools = (SEND, {**SHOOT, "description": "Shoots, and mails."})
    async with guarded(shop, "warn", store=store, policies=POLICIES) as front:
        (sent, shot) = await front.list(session)
        assert "Warning" not in sent["description"] and "Warning" in shot["description"]
        status = await front.baselines.status()
        assert status.drift is not None and [each.name for each in status.drift.changed] == ["shoot"]


async def test_a_wrapped_tool_that_changed_is_drift_in_every_form() -> None:
    """What a server adds beside the adapter's words of any version is told of."""
    shop, store = Shop(SEND, SHOOT), MemoryStore()
    async with listed(shop, store=store, policies=POLICIES) as (front, session):
        await pin_as_before(front, SEND, SHOOT)
    shop.tools = ({**SEND, "description": "Sends a file, and mails it."}, SHOOT)
    async with guarded(shop, store=store, policies=POLICIES) as front:
        with pytest.raises(CatalogueDrifted):
            await front.call(session, "send")
