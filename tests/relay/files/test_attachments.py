"""Files that a host attaches, fetched by scripted downloads: their time, and what is kept when something fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from adapter.errors import StorageFull
from adapter.relay.call.call_gate import Cancellations
from adapter.relay.files.attachments import AttachedFiles, AttachmentStage, HandleRefused
from adapter.relay.files.scopes import Scopes
from adapter.relay.stages import Call, CallOrigin, Withdrawn
from adapter.rules.files.attached_files import parameter_of
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.settings.storage import Uploads
from adapter.state.sqlite import MemoryStore
from adapter.upstream.port import Download, DownloadFailed
from adapter.wire.envelope import Envelope, read_envelope
from tests.relay.filing import ALICE, Filing

FILE = {"download_url": "https://files.test/1", "file_id": "1"}


async def content(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def dripping() -> AsyncIterator[bytes]:
    """A file of which some byte comes always soon, and the last one never."""
    while True:
        yield b"x"
        await asyncio.sleep(0.01)


def scripted(
    filing: Filing,
    chunks: Callable[[str], AsyncIterator[bytes]],
    timeout: float = 60,
    length: int | None = None,
    cancellations: Cancellations | None = None,
) -> tuple[AttachedFiles, list[FileRecord]]:
    """The files that were kept are added to the list. ``length`` is what is announced of each."""
    kept: list[FileRecord] = []

    @asynccontextmanager
    async def download(url: str) -> AsyncIterator[Download]:
        yield Download(length, "text/plain", chunks(url))

    async def keep(record: FileRecord) -> None:
        kept.append(record)

    scopes, limits = Scopes(MemoryStore(), per_principal=False), Uploads(max_file_bytes=1000)
    given_up = cancellations or Cancellations()
    taking = AttachedFiles("desk", filing.registry, scopes, limits, download, keep, given_up)
    taking.timeout = timeout
    return taking, kept


def call(arguments: dict[str, Any], session: str | None = None) -> Call:
    params = {"name": "read", "arguments": arguments}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    envelope = read_envelope(body)
    assert isinstance(envelope, Envelope)
    return Call(CallOrigin("desk", session=session), ALICE, envelope, body)


def stage(taking: AttachedFiles, argument: str = "path") -> AttachmentStage:
    parameter = parameter_of(argument)
    assert parameter is not None

    async def applies(_: Call) -> bool:
        return True

    return AttachmentStage(taking, parameter, "up://", applies)


async def test_a_file_is_kept_as_an_upload(filing: Filing) -> None:
    """Whoever counts uploads is told; the handle has the scheme of the argument."""
    taking, kept = scripted(filing, lambda _: content(b"hel", b"lo"))
    taken = call({"path": {**FILE, "mime_type": "text/csv", "file_name": "a.csv"}})
    await stage(taking).take(taken)
    (record,) = kept
    handle = orjson.loads(taken.request)["params"]["arguments"]["path"]
    assert handle == f"up://sessions/{ALICE.id}/{record.id}"
    assert (record.kind, record.server, record.filename) == (FileKind.UPLOAD, "desk", "a.csv")
    assert (record.content.size, record.content.media_type) == (5, "text/csv")


async def test_all_files_of_a_call_have_their_time(filing: Filing) -> None:
    """Also where something comes always soon. Nothing of them stays."""
    taking, kept = scripted(filing, lambda _: dripping(), timeout=0.2)
    with pytest.raises(HandleRefused, match=r"did not arrive within 0\.2 s"):
        await stage(taking).take(call({"path": FILE}))
    assert kept == [] and not filing.files.stagings and filing.registry.total == 0


async def test_a_call_that_is_given_up_is_fetched_no_longer(filing: Filing) -> None:
    """Its client says so by a notification. Nothing of its files stays, and nothing goes upstream."""
    began, cancellations = asyncio.Event(), Cancellations()

    async def never(_: str) -> AsyncIterator[bytes]:
        yield b"x"
        began.set()
        await asyncio.Event().wait()

    taking, kept = scripted(filing, never, cancellations=cancellations)
    taken = asyncio.create_task(stage(taking).take(call({"path": FILE}, "ann")))
    await began.wait()
    body = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    notification = read_envelope(body)
    assert isinstance(notification, Envelope)
    for session in ("bob", "ann"):
        assert not taken.done()
        await cancellations.admit(Call(CallOrigin("desk", session=session), ALICE, notification, body))
    with pytest.raises(Withdrawn):
        await taken
    assert kept == [] and not filing.files.stagings and filing.registry.total == 0


@pytest.mark.parametrize("failure", [DownloadFailed("files.test is gone."), StorageFull("Full.")])
async def test_a_failure_keeps_nothing(filing: Filing, failure: Exception) -> None:
    """Its sentence reaches the model, and the files before it are given up."""

    async def failing(url: str) -> AsyncIterator[bytes]:
        yield b"x"
        if url.endswith("2"):
            raise failure

    taking, kept = scripted(filing, failing)
    files = [FILE, {"download_url": "https://files.test/2", "file_id": "2"}]
    with pytest.raises(HandleRefused) as raised:
        await stage(taking).take(call({"path": files}))
    assert str(failure) in str(raised.value)
    assert kept == [] and not filing.files.stagings and filing.registry.total == 0


async def test_many_urls_of_one_file_are_many_files(filing: Filing) -> None:
    """An id is the host's word: another URL may lead to other bytes."""
    taking, kept = scripted(filing, lambda url: content(url.encode()))
    await stage(taking).take(call({"path": [FILE, {**FILE, "download_url": "https://files.test/2"}, FILE]}))
    assert len(kept) == 2


@pytest.mark.parametrize("length", [5, None])
async def test_other_files_go_for_what_is_announced(length: int | None) -> None:
    """And not for what a file may have at most. Without a length nobody knows whether it would help."""
    filing = Filing(total_bytes=100, scope_bytes=None)
    [oldest] = await filing.upload(b"o" * 50)
    filing.clock.now += 1
    [other] = await filing.upload(b"p" * 50)
    taking, kept = scripted(filing, lambda _: content(b"hello"), length=length)
    if length is None:
        with pytest.raises(HandleRefused, match=r"storage\.max_size"):
            await stage(taking).take(call({"path": FILE}))
        assert await filing.held() == [oldest, other]
    else:
        await stage(taking).take(call({"path": FILE}))
        assert await filing.held() == [other, *kept]
