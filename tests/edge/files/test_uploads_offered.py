"""Uploads by the two links of an offer: how long what came is kept, and whose it is when its session has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adapter.relay.files.upload_offers import TABLE
from adapter.rules.access.principals import ANONYMOUS
from adapter.rules.access.sessions import session_key
from adapter.rules.files.file_records import FileKind, FileRecord, batch_of, decode
from tests.edge.filing import FORM, SERVER, Desk, file_part, filing, form, send_form

PERSON = "ann:0"


async def uploaded(desk: Desk, query: str, content: bytes = b"hello") -> tuple[dict[str, Any], FileRecord]:
    """The answer to an upload, and its record."""
    async with desk.client() as client:
        head, answer = await send_form(client, f"/upload/{SERVER}?{query}", form(file_part(content)))
    assert head.status == 200
    files = [decode(row.value) for row in await desk.sessions.store.scan("files")]
    return answer, next(each for each in files if each.id == answer["upload"]["upload_id"])


async def held(desk: Desk, record: FileRecord) -> bool:
    """Tell whether a file has a row still; it is not used by that."""
    return await desk.sessions.store.get("files", record.key) is not None


@pytest.mark.parametrize("page", [False, True])
async def test_what_a_person_sent_waits_for_their_chat(tmp_path: Path, page: bool) -> None:
    """For as long as the link was good, from its arrival; what a program sent is used at once or never."""
    async with filing(tmp_path) as desk:
        _, scope = await desk.session()
        offer = await desk.offers.issue(SERVER, ANONYMOUS, scope)
        desk.clock.ahead += 100
        links = offer.links
        _, record = await uploaded(desk, links.page_query if page else links.query)
        for passed, kept in ((110, True), (20, page), (760, page), (20, False)):
            desk.clock.ahead += passed
            await desk.registry.expire()
            assert await held(desk, record) is kept, passed


async def test_what_was_offered_outlives_its_session(tmp_path: Path) -> None:
    """Links, what a person sent and what came later, until nobody has used the files for their time; what a program
    sent into the open session goes with it."""
    async with filing(tmp_path) as desk:
        session_id, scope = await desk.session()
        program, person, late = [await desk.offers.issue(SERVER, ANONYMOUS, scope) for _ in range(3)]
        _, sent = await uploaded(desk, program.links.query)
        _, one = await uploaded(desk, person.links.page_query)
        own = await desk.artifact(scope, b"drawn")
        await desk.sessions.store.delete("sessions", session_key(session_id))
        assert await desk.scopes.is_kept(scope)
        stay = await desk.offers.outliving({sent.batch or "", one.batch or ""})
        await desk.registry.drop_scope(scope.id, offered=False, but=stay)
        assert not await held(desk, own) and not await held(desk, sent)
        _, two = await uploaded(desk, late.links.query)
        for record in (one, two):
            assert await desk.registry.find(scope.id, FileKind.UPLOAD, record.id) == record
        desk.clock.ahead += 1000
        await desk.registry.tidy(desk.scopes.gone)
        assert desk.files() == [] and await desk.scopes.find(scope.id) is None
        await desk.offers.expire()
        assert await desk.sessions.store.count(TABLE) == 0


async def test_handles_are_good_for_who_asked(tmp_path: Path) -> None:
    """A known principal has them for every session; where nobody is known, a program has them for the session that
    asked, and a person for every one."""
    async with filing(tmp_path) as desk:
        _, scope = await desk.session()
        for principal, page, everywhere in (
            (PERSON, False, True),
            (PERSON, True, True),
            (ANONYMOUS, False, False),
            (ANONYMOUS, True, True),
        ):
            links = (await desk.offers.issue(SERVER, principal, scope)).links
            answer, record = await uploaded(desk, links.page_query if page else links.query)
            owner = record.batch if everywhere else scope.id
            assert answer["upload_handle"] == f"upload://sessions/{owner}/{record.id}"


async def test_a_link_without_its_offer_is_good_still(tmp_path: Path) -> None:
    """One that an earlier version issued, or whose row is lost: its files are its session's."""
    async with filing(tmp_path) as desk:
        _, scope = await desk.session()
        answer, record = await uploaded(desk, desk.credentials.issue(SERVER, scope.id).query)
        assert record.batch is None and answer["upload_handle"].startswith(f"upload://sessions/{scope.id}/")


async def test_an_upload_may_take_longer_than_its_link(tmp_path: Path) -> None:
    """One that began in time keeps its offer and its scope, also when the session is gone by then."""
    async with filing(tmp_path) as desk, desk.client() as client:
        session_id, scope = await desk.session()
        offer = await desk.offers.issue(SERVER, ANONYMOUS, scope)
        await desk.sessions.store.delete("sessions", session_key(session_id))
        desk.clock.ahead += 800
        body, path = form(file_part(b"hello")), f"/upload/{SERVER}?{offer.links.page_query}"
        await client.send("POST", body[:-20], path, content_type=FORM, content_length=str(len(body)))
        batch = batch_of(offer.upload_id) or ""
        async with asyncio.timeout(10):
            while (known := await desk.offers.find(batch)) and known.due < desk.clock() + 1000:
                await asyncio.sleep(0.05)
        desk.clock.ahead += 1000
        await desk.offers.expire()
        await desk.scopes.tidy()
        await client.send_more(body[-20:])
        assert (await client.head()).status == 200
        (row,) = await desk.sessions.store.scan("files")
        assert decode(row.value).batch == batch and await desk.offers.find(batch) is not None
        assert await desk.scopes.is_kept(scope)


async def test_use_keeps_an_offer_with_its_files(tmp_path: Path) -> None:
    """It is not written with each use, and never ends before the files that were used last."""
    async with filing(tmp_path) as desk:
        _, scope = await desk.session()
        offer = await desk.offers.issue(SERVER, ANONYMOUS, scope)
        _, record = await uploaded(desk, offer.links.page_query)
        assert record.batch is not None
        for _ in range(50):
            desk.clock.ahead += 100
            known = await desk.offers.find(record.batch)
            assert known is not None
            await desk.offers.use(known)
            assert known.due >= desk.clock() + 890
        desk.clock.ahead += 2000
        assert await desk.offers.find(record.batch) is None
