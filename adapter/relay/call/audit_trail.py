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
from adapter.rules.calls.audit_record import AUDITED, AuditRecord, arguments_digest
from adapter.rules.calls.request_outcomes import CLIENT_GONE, OK, AnswerReader, RequestOutcome, is_success
from adapter.rules.files.file_records import FileRecord
from adapter.settings.telemetry import AuditSettings
from adapter.wire.envelope import Envelope, parse

APART = 1 << 16
"""Bytes of a message that is looked into in a thread."""


UPLOADED, DOWNLOADED = "files/upload", "files/download"


class AuditSink(Protocol):
    """Takes the lines; see AuditLog. ``failing``: the last one could not be written."""

    failing: bool

    async def write(self, line: bytes) -> None:
        """Append a line. Raises AuditUnavailable."""


@dataclass(eq=False, repr=False)
class AuditTrail:
    """Writes records into ``sink``; what nobody waits for is written in the ``background``. ``place`` names this
    process.
    """

    sink: AuditSink
    settings: AuditSettings
    place: tuple[tuple[str, str | int], ...]
    background: BackgroundTasks
    log: FilteringBoundLogger

    @property
    def strict(self) -> bool:
        """True where no call goes on without a record."""
        return self.settings.on_failure == "refuse"

    async def begin(self, ask: ClientRequest) -> list[AuditRecord]:
        """The records of the requests in a message, none for other messages. Raises AuditUnavailable."""
        sender, requests = ask.sender, requests_of(ask.envelope)
        records = [
            AuditRecord(
                each.method,
                ask.server.id,
                each.name or "",
                sender.principal,
                sender.caller.entrance,
                _now(),
                time.monotonic(),
                each.id,
                None if sender.session_id is None else session_key(sender.session_id),
                len(ask.body if each is ask.envelope else each.body),
                id_bytes=each.id_bytes,
            )
            for each in requests
            if each.method in AUDITED
        ]
        if records and self.sink.failing and self.strict:
            await self._require()
        if self.settings.arguments_digest:
            for record, each in zip(
                records, (each for each in requests if each.method in AUDITED), strict=True
            ):
                await self._digest(record, each.body)
        return records

    async def _digest(self, record: AuditRecord, body: bytes) -> None:
        if record.method != "resources/read":
            key = self.settings.arguments_key
            digest = partial(_digest, body, None if key is None else key.get_secret_value().encode())
            record.arguments = await asyncio.to_thread(digest) if len(body) > APART else digest()

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
            time.monotonic(),
            session=owner if kind == "session" else None,
        )
        size = file.content.size
        record.request, answer = (size, 0) if event == UPLOADED else (0, size)
        await self.write([record], OK, answer)

    async def _require(self) -> None:
        """Raise AuditUnavailable unless the log can be written again."""
        record = AuditRecord("audit/restored", "", "", "", "adapter", _now(), time.monotonic())
        await self.sink.write(record.line(self.place))

    async def write(self, records: Iterable[AuditRecord], outcome: RequestOutcome, size: int = 0) -> None:
        """Write the records that are not written yet. Raises AuditUnavailable where no call goes on without."""
        for each in records:
            if each.written:
                continue
            each.written = True
            if outcome is not OK:
                each.end(outcome)
            each.answer, each.milliseconds = size, (time.monotonic() - each.since) * 1000
            was_failing = self.sink.failing
            try:
                await self.sink.write(each.line(self.place))
            except AuditUnavailable:
                if not was_failing:
                    self.log.error("the audit log cannot be written", strict=self.strict)
                if self.strict:
                    raise

    def write_later(self, records: list[AuditRecord], outcome: RequestOutcome) -> None:
        """Write the records that are not written yet, for nobody who waits."""
        if not all(each.written for each in records):
            self.background.run(self._quietly(records, outcome))

    async def _quietly(self, records: list[AuditRecord], outcome: RequestOutcome) -> None:
        with contextlib.suppress(AuditUnavailable):
            await self.write(records, outcome)

    async def fail(self, records: list[AuditRecord], ask: ClientRequest, outcome: RequestOutcome) -> None:
        """Write the records of requests that were not answered. Raises AuditUnavailable."""
        name_again(records, ask)
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

    async def whole(
        self, records: list[AuditRecord], ask: ClientRequest, answer: ClientResponse, body: bytes
    ) -> None:
        """Write the records of requests whose answer has all its ``body``, and tell it the outcome. It is closed where
        that raises AuditUnavailable.
        """
        name_again(records, ask)
        if is_success(answer.status, body) and len(records) == 1 and records[0].id_bytes in body:
            # Nearly all answers: to read one takes as long as to write its line.
            answer.outcome = OK
            await self.write(records, OK, len(body))
            return
        reader = AnswerReader(answer.status, streams=media_type(answer.headers) == EVENT_STREAM, exact=True)
        try:
            for data in (*reader.feed(body), *reader.rest()):
                await self.read(records, reader, data)
            answer.outcome = reader.final
            await self.write(records, answer.outcome, reader.size)
        except BaseException:
            await answer.close()
            raise


def name_again(records: list[AuditRecord], ask: ClientRequest) -> None:
    """Note the tool that code mode has put in the place of its own."""
    if isinstance(ask.envelope, Envelope):
        record, name = records[0], ask.envelope.name or ""
        if name != record.name:
            record.via, record.name = record.name, name


def _digest(body: bytes, key: bytes | None) -> str:
    params = parse(body).get("params")
    return arguments_digest(params.get("arguments") if isinstance(params, dict) else None, key)


def _now() -> str:
    milliseconds = time.time_ns() // 1_000_000
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03}Z"


@lru_cache(maxsize=1)
def _second(unix: int) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat().removesuffix("+00:00")
