"""The record of each call, written before the last bytes of its answer leave."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from adapter.errors import AuditUnavailable
from adapter.relay.background import BackgroundTasks
from adapter.relay.exchange import ClientRequest, ClientResponse, requests_of
from adapter.relay.replies import EVENT_STREAM, media_type
from adapter.rules.access.sessions import session_key
from adapter.rules.calls.audit_record import (
    AUDITED,
    LONGEST_NAME,
    AuditRecord,
    ProcessName,
    arguments_digest,
)
from adapter.rules.calls.request_outcomes import CLIENT_GONE, OK, AnswerReader, RequestOutcome, is_success
from adapter.rules.files.file_records import FileRecord
from adapter.settings.telemetry import AuditSettings
from adapter.wire.envelope import REQUEST, Batch, Envelope, parse, value_at

APART = 1 << 16
"""Bytes of a message that is looked into in a thread."""


UPLOADED, DOWNLOADED = "files/upload", "files/download"


class AuditSink(Protocol):
    """Takes the lines; see AuditLog. ``failing``: the last one could not be written."""

    failing: bool

    async def write(self, line: bytes) -> None:
        """Append a line. Raises AuditUnavailable."""

    def write_at_once(self, line: bytes) -> bool:
        """Append a line, or return False where that may take its time."""


@dataclass(slots=True, eq=False, repr=False)
class AuditedMessage:
    """A message of a client with requests to record. It was ``asked`` with so many bytes (``size``).

    ``began`` is Unix time in nanoseconds, ``since`` the same moment of the performance counter. Its ``records`` are
    made when they are needed, which few are: see ``AuditTrail.write_success``.
    """

    asked: Envelope | Batch | None
    began: int
    since: float
    size: int
    records: list[AuditRecord] | None = None


@dataclass(eq=False, repr=False)
class AuditTrail:
    """Writes records into ``sink``; what nobody waits for is written in the ``background``. ``place`` names this
    process.
    """

    sink: AuditSink
    settings: AuditSettings
    place: ProcessName
    background: BackgroundTasks
    log: FilteringBoundLogger

    def begin(self, ask: ClientRequest, since: float) -> AuditedMessage | None:
        """The message, if there are requests in it to record."""
        asked = ask.envelope
        if type(asked) is Envelope and (asked.method not in AUDITED or asked.kind is not REQUEST):
            return None
        message = AuditedMessage(asked, time.time_ns(), since, len(ask.body))
        # The bodies of a batch's members are gone when they have been sent.
        return message if type(asked) is Envelope or self.records_of(message, ask) else None

    def records_of(self, message: AuditedMessage, ask: ClientRequest) -> list[AuditRecord]:
        """The records of a message. They name the tool that code mode has put in the place of its own."""
        sender, asked, now = ask.sender, message.asked, ask.envelope
        records = message.records = message.records or [
            AuditRecord(
                each.method,
                ask.server.id,
                each.name or "",
                sender.principal,
                sender.caller.entrance,
                _time(message.began),
                message.since,
                each.id,
                None if sender.session_id is None else session_key(sender.session_id),
                message.size if each is asked else len(each.body),
                id_bytes=each.id_bytes,
            )
            for each in requests_of(asked)
            if each.method in AUDITED
        ]
        if isinstance(now, Envelope) and (now.name or "") != records[0].name:
            records[0].via, records[0].name = records[0].name, now.name or ""
        return records

    async def prepare(self, message: AuditedMessage, ask: ClientRequest) -> None:
        """Do what comes before a message is sent: where the log fails, or digests are asked for. Raises
        AuditUnavailable.
        """
        if self.sink.failing:
            await self._require()
        if (key := self.settings.arguments_key) is not None:
            audited = (each for each in requests_of(message.asked) if each.method in AUDITED)
            for record, each in zip(self.records_of(message, ask), audited, strict=True):
                await self._digest(record, each.body, key.get_secret_value().encode())

    async def _digest(self, record: AuditRecord, body: bytes, key: bytes) -> None:
        if record.method != "resources/read":
            digest = partial(_digest, body, key)
            record.arguments = await asyncio.to_thread(digest) if len(body) > APART else digest()

    async def file(self, event: str, file: FileRecord) -> None:
        """Record that a file was taken in or is about to be sent. Raises AuditUnavailable."""
        kind, _, owner = file.owner.partition(":")
        record = AuditRecord(
            event,
            file.server,
            file.filename,
            owner if kind == "principal" else "",
            "files",
            _time(time.time_ns()),
            time.perf_counter(),
            session=owner if kind == "session" else None,
        )
        size = file.content.size
        record.request, answer = (size, 0) if event == UPLOADED else (0, size)
        await self.write([record], OK, answer)

    async def _require(self) -> None:
        """Raise AuditUnavailable unless the log can be written again."""
        now = _time(time.time_ns())
        record = AuditRecord("audit/restored", "", "", "", "adapter", now, time.perf_counter())
        await self.sink.write(record.line(self.place))

    async def write(self, records: Iterable[AuditRecord], outcome: RequestOutcome, size: int = 0) -> None:
        """Write the records that are not written yet. Raises AuditUnavailable."""
        for each in records:
            if each.written:
                continue
            each.written = True
            if outcome is not OK:
                each.end(outcome)
            each.answer, each.milliseconds = size, (time.perf_counter() - each.since) * 1000
            was_failing = self.sink.failing
            try:
                await self.sink.write(each.line(self.place))
            except AuditUnavailable as error:
                if not was_failing:
                    self.log.error("the audit log cannot be written", error=str(error))
                raise

    def write_later(self, records: list[AuditRecord], outcome: RequestOutcome) -> None:
        """Write the records that are not written yet, for nobody who waits."""
        if not all(each.written for each in records):
            self.background.run(self._quietly(records, outcome))

    async def _quietly(self, records: list[AuditRecord], outcome: RequestOutcome) -> None:
        with contextlib.suppress(AuditUnavailable):
            await self.write(records, outcome)

    async def fail(self, message: AuditedMessage, ask: ClientRequest, outcome: RequestOutcome) -> None:
        """Write the records of requests that were not answered. Raises AuditUnavailable."""
        records = self.records_of(message, ask)
        if outcome == CLIENT_GONE:
            self.write_later(records, outcome)
        else:
            await self.write(records, outcome)

    async def read(self, records: list[AuditRecord], reader: AnswerReader, data: bytes | None) -> None:
        """Look into a message of an answer, and write the records of the requests that it answers. Raises
        AuditUnavailable.
        """
        is_long = data is not None and len(data) > APART
        for response in await asyncio.to_thread(reader.note, data) if is_long else reader.note(data):
            found = [each for each in records if response.id is None or each.id == response.id]
            await self.write(found, response.outcome, reader.size)

    def write_success(
        self, message: AuditedMessage, ask: ClientRequest, answer: ClientResponse, body: bytes
    ) -> bool:
        """As ``write_whole``, for nearly all answers. False for others, and where writing may take its time."""
        asked, sender = message.asked, ask.sender
        # Code mode puts another request in the place of its own. Several requests, or digests, have records.
        if ask.envelope is not asked or type(asked) is not Envelope or message.records:
            return False
        name, number = asked.name, asked.id
        if name is None or len(name) > LONGEST_NAME or type(number) is not int:
            return False
        # Not ``in``, as there.
        if not is_success(answer.status, body) or body.find(b"%d" % number) < 0:
            return False
        principal, entrance = sender.principal, sender.caller.entrance
        caller = asked.method, ask.server.id, name, principal, entrance, sender.session_id
        second, millisecond = _second(message.began // 1_000_000_000), message.began // 1_000_000 % 1000
        took = (time.perf_counter() - message.since) * 1000
        measured = second, millisecond, took, message.size, len(body), number
        answer.outcome = OK
        return self.sink.write_at_once(AuditRecord.success(caller, self.place) % measured)

    async def write_whole(
        self, message: AuditedMessage, ask: ClientRequest, answer: ClientResponse, body: bytes
    ) -> None:
        """Write the records of requests whose answer has all its ``body``, and tell it the outcome. It is closed where
        that raises AuditUnavailable.
        """
        records = self.records_of(message, ask)
        reader = AnswerReader(answer.status, streams=media_type(answer.headers) == EVENT_STREAM, exact=True)
        try:
            for data in (*reader.feed(body), *reader.rest()):
                await self.read(records, reader, data)
            answer.outcome = reader.final
            await self.write(records, answer.outcome, reader.size)
        except BaseException:
            await answer.close()
            raise


def _digest(body: bytes, key: bytes) -> str:
    return arguments_digest(value_at(parse(body), "params", "arguments"), key)


def _time(unix: int) -> str:
    """A time of RFC 3339, of Unix time in nanoseconds."""
    second, rest = divmod(unix, 1_000_000_000)
    return f"{_second(second).decode()}.{rest // 1_000_000:03}Z"


@lru_cache(maxsize=1)
def _second(unix: int) -> bytes:
    return datetime.fromtimestamp(unix, UTC).isoformat().removesuffix("+00:00").encode()
