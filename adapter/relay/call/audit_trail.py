"""The relay with a record of each call, written before the last bytes of its answer leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, AuditUnavailable, BadJson, MessageTooLong
from adapter.relay.background import BackgroundTasks
from adapter.relay.call.dispatch import Relay
from adapter.relay.exchange import ClientRequest, ClientResponse, asking_plain, both, requests_of
from adapter.relay.replies import messages_in
from adapter.rules.access.sessions import session_key
from adapter.rules.calls.audit_record import AUDITED, AuditRecord, arguments_digest, outcome_of
from adapter.rules.files.file_records import FileRecord
from adapter.upstream.port import header
from adapter.wire.envelope import Envelope, failure, parse, read_response
from adapter.wire.sse import SseReader, encode

LOOKED_INTO = 1 << 20
"""Bytes of an answer, or of one event, that are looked into; the outcome of a larger one is ``answered``."""

APART = 1 << 16
"""Bytes of a message that is looked into in a thread."""


UPLOADED, DOWNLOADED = "files/upload", "files/download"


class AuditSink(Protocol):
    """Takes the lines; see AuditLog. ``failing``: the last one could not be written."""

    failing: bool

    async def write(self, line: bytes) -> None:
        """Append a line. Raises AuditUnavailable."""


class AuditTerms(NamedTuple):
    """The settings of the record. ``key`` is that of the digest of arguments, ``place`` names this process.

    ``strict``: no call goes on without a record.
    """

    digests: bool = False
    key: bytes | None = None
    strict: bool = True
    place: tuple[tuple[str, str | int], ...] = ()


@dataclass(slots=True)
class OpenRecord:
    """The record of a request that is under way; ``began`` is a moment of the monotonic clock."""

    envelope: Envelope
    record: AuditRecord
    id_bytes: bytes
    began: float = field(default_factory=time.monotonic)
    written: bool = False


class AuditTrail:
    """Writes records into ``sink``; what nobody waits for is written in the ``background``."""

    def __init__(
        self, sink: AuditSink, terms: AuditTerms, background: BackgroundTasks, log: FilteringBoundLogger
    ) -> None:
        self._sink = sink
        self._terms = terms
        self._background = background
        self._log = log
        self._lost = 0

    def __repr__(self) -> str:
        return f"<AuditTrail: {self._lost} records lost>"

    async def begin(self, ask: ClientRequest) -> list[OpenRecord]:
        """The records of the requests in a message, none for other messages. Raises AuditUnavailable."""
        requests = [each for each in requests_of(ask.envelope) if each.method in AUDITED]
        if not requests:
            return []
        if self._sink.failing and self._terms.strict:
            await self._require()
        return [await self._opened(ask, each, alone=isinstance(ask.envelope, Envelope)) for each in requests]

    async def _opened(self, ask: ClientRequest, request: Envelope, *, alone: bool) -> OpenRecord:
        sender = ask.sender
        record = AuditRecord(
            request.method,
            ask.server.id,
            request.name or "",
            sender.principal,
            sender.caller.entrance,
            _now(),
            request.id,
            None if sender.session_id is None else session_key(sender.session_id),
            len(ask.body) if alone else len(request.body),
            place=dict(self._terms.place),
        )
        if self._terms.digests and request.method != "resources/read":
            digest = partial(_digest, request.body, self._terms.key)
            record.arguments = await asyncio.to_thread(digest) if len(request.body) > APART else digest()
        return OpenRecord(request, record, request.id_bytes)

    async def file(self, event: str, file: FileRecord) -> None:
        """Record that a file was taken in or is about to be sent. Raises AuditUnavailable where nothing goes on without
        a record.
        """
        kind, _, owner = file.owner.partition(":")
        record = AuditRecord(
            event,
            file.server,
            file.filename,
            owner if kind == "principal" else "",
            "files",
            _now(),
            session=owner if kind == "session" else None,
            outcome="ok",
            place=dict(self._terms.place),
        )
        record.request, record.answer = (
            (file.content.size, 0) if event == UPLOADED else (0, file.content.size)
        )
        await self._append(record)

    async def _require(self) -> None:
        """Raise AuditUnavailable unless the log can be written again."""
        line = AuditRecord(
            "audit/restored", "", "", "", "adapter", _now(), outcome="ok", place=dict(self._terms.place)
        )
        await self._sink.write(line.line())

    async def write(
        self, records: list[OpenRecord], outcome: str, code: str | int | None, size: int = 0
    ) -> None:
        """Write the records that are not written yet. Raises AuditUnavailable where no call goes on without."""
        for each in records:
            if each.written:
                continue
            each.written = True
            record = each.record
            record.outcome, record.code, record.answer = outcome, code, size
            record.milliseconds = (time.monotonic() - each.began) * 1000
            await self._append(record)

    async def _append(self, record: AuditRecord) -> None:
        was_failing = self._sink.failing
        try:
            await self._sink.write(record.line())
        except AuditUnavailable:
            self._lost += 1
            if not was_failing:
                self._log.error("the audit log cannot be written", strict=self._terms.strict)
            if self._terms.strict:
                raise

    def write_later(self, records: list[OpenRecord], outcome: str, code: str | None = None) -> None:
        """Write the records that are not written yet, for nobody who waits."""
        if not all(each.written for each in records):
            self._background.run(self._quietly(records, outcome, code))

    async def _quietly(self, records: list[OpenRecord], outcome: str, code: str | None) -> None:
        try:
            await self.write(records, outcome, code)
        except AuditUnavailable:
            return

    async def answered(self, records: list[OpenRecord], data: bytes, size: int) -> None:
        """Write the records of requests that this message, or batch of messages, answers. Raises AuditUnavailable."""
        if all(each.written for each in records):
            return
        look = partial(_responses, data)
        for response in await asyncio.to_thread(look) if len(data) > APART else look():
            found = [each for each in records if response.id is None or each.envelope.id == response.id]
            await self.write(found, response.outcome, response.code, size)


class _Response(NamedTuple):
    id: str | int | float | None
    outcome: str
    code: str | int | None


def _responses(data: bytes) -> list[_Response]:
    try:
        read = [read_response(message) for message in messages_in(data)]
    except BadJson:
        return []
    return [_Response(each.id, *outcome_of(each.message)) for each in read if each is not None]


def _digest(body: bytes, key: bytes | None) -> str:
    params = parse(body).get("params")
    return arguments_digest(params.get("arguments") if isinstance(params, dict) else None, key)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class AuditedRelay(Relay):
    """A relay that keeps a record of calls."""

    trail: AuditTrail = field(init=False)

    async def handle(self, ask: ClientRequest) -> ClientResponse:
        """See Relay. Raises AuditUnavailable where no call goes on without a record."""
        trail = self.trail
        records = await trail.begin(ask)
        if not records:
            return await Relay.handle(self, ask)
        # A compressed answer would not tell its outcome.
        ask.headers = asking_plain(ask.headers)
        try:
            answer = await Relay.handle(self, ask)
        except AdapterError as error:
            _name_again(ask, records)
            await trail.write(records, "error" if error.http >= 500 else "refused", error.code)
            raise
        except asyncio.CancelledError:
            trail.write_later(records, "client_gone")
            raise
        except Exception:
            trail.write_later(records, "error", "internal")
            raise
        _name_again(ask, records)
        return await _watched(trail, records, answer)


def _name_again(ask: ClientRequest, records: list[OpenRecord]) -> None:
    """Note the tool that code mode has put in the place of its own."""
    if isinstance(ask.envelope, Envelope):
        record, name = records[0].record, ask.envelope.name or ""
        if name != record.name:
            record.via, record.name = record.name, name


async def _watched(trail: AuditTrail, records: list[OpenRecord], answer: ClientResponse) -> ClientResponse:
    """The answer, whose last bytes leave when the records are written. Raises AuditUnavailable."""
    streams = (header(answer.headers, "content-type") or "").lower().startswith("text/event-stream")
    if isinstance(answer.body, bytes):
        try:
            await _whole(trail, records, answer, answer.body, streams=streams)
        except AuditUnavailable:
            await answer.close()
            raise
        return answer
    watch = _events if streams else _pieces
    answer.body = watch(trail, records, answer, answer.body)
    answer.release = both(answer.release, partial(trail.write_later, records, "client_gone"))
    return answer


async def _whole(
    trail: AuditTrail, records: list[OpenRecord], answer: ClientResponse, body: bytes, *, streams: bool
) -> None:
    if len(body) > LOOKED_INTO:
        await trail.write(records, "answered", None, len(body))
        return
    if streams:
        for data in _data_of(SseReader(LOOKED_INTO), body):
            await trail.answered(records, data, len(body))
    else:
        await trail.answered(records, body, len(body))
    await trail.write(records, *_without_response(answer, streams=streams), len(body))


def _data_of(reader: SseReader, chunk: bytes) -> list[bytes]:
    try:
        return [event.data for event in reader.feed(chunk) if event.data]
    except MessageTooLong:
        return []


def _without_response(answer: ClientResponse, *, streams: bool) -> tuple[str, str | None]:
    """The outcome of requests that no message answered."""
    if answer.status >= 400:
        return "error", f"http_{answer.status}"
    return ("deferred" if streams else "answered"), None


async def _events(
    trail: AuditTrail, records: list[OpenRecord], answer: ClientResponse, pieces: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The event stream; a chunk that completes a response leaves when its record is written."""
    reader, size = SseReader(LOOKED_INTO, skip=True), 0
    try:
        async for chunk in pieces:
            size += len(chunk)
            try:
                for event in reader.feed(chunk):
                    if event.data:
                        await trail.answered(records, event.data, size)
                    elif event.skipped:
                        await trail.write(records, "answered", None, size)
            except AuditUnavailable as error:
                yield b"".join(encode(failure(error, each.id_bytes)) for each in records)
                return
            yield chunk
        await trail.write(records, *_without_response(answer, streams=True), size)
    except AdapterError as error:
        trail.write_later(records, "error", error.code)
        raise
    finally:
        await pieces.aclose()


async def _pieces(
    trail: AuditTrail, records: list[OpenRecord], answer: ClientResponse, pieces: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The pieces of one long answer; the last one leaves when the records are written."""
    held: list[bytes] = []
    last, size = b"", 0
    try:
        async for piece in pieces:
            if last:
                yield last
            last, size = piece, size + len(piece)
            if size <= LOOKED_INTO:
                held.append(piece)
            else:
                held.clear()
        if held:
            await trail.answered(records, b"".join(held), size)
        await trail.write(records, *_without_response(answer, streams=False), size)
        if last:
            yield last
    except AdapterError as error:
        trail.write_later(records, "error", error.code)
        raise
    finally:
        await pieces.aclose()
