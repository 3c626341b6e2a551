"""The upload consumer: handles in a tool's argument become what the tool can read.

Source of the rules: a handle is checked against the scope and the server; one of another scope, one that expired
and one that never was give the same answer.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from adapter.errors import FileGone
from adapter.files.port import FileStore
from adapter.relay.holdings import Holdings
from adapter.relay.links import Links
from adapter.relay.mirrors import Mirrors
from adapter.relay.stages import Call
from adapter.rules.arguments import replacements, values
from adapter.rules.holdings import FileRecord, Kind
from adapter.rules.results import tool_result
from adapter.wire.handles import parse_artifact, parse_upload

Delivery = Literal["path", "file_uri", "base64", "data_uri", "url"]


@dataclass(frozen=True, slots=True)
class Consuming:
    """One upload consumer of the configuration. ``argument`` is dotted and goes through lists: ``files[].path``.

    ``helper`` is the tool that hands out upload URLs, ``inline_limit`` the largest file (bytes) that base64 and
    data_uri deliver.
    """

    server: str
    argument: str
    helper: str
    delivery: Delivery = "path"
    inline_limit: int = 1 << 20
    plain_paths: bool = False
    upload_scheme: str = "upload://"
    artifact_scheme: str = "artifact://"


class Refused(Exception):
    """``str(error)`` is the sentence that the model reads as the tool's result."""


class Consumer:
    """The stage of the tools of one upload consumer."""

    def __init__(
        self,
        rule: Consuming,
        holdings: Holdings,
        files: FileStore,
        links: Links,
        mirrors: Mirrors,
    ) -> None:
        self._rule = rule
        self._holdings = holdings
        self._files = files
        self._links = links
        self._mirrors = mirrors

    def __repr__(self) -> str:
        return f"<Consumer of {self._rule.server!r}: {self._rule.argument}>"

    async def ask(self, call: Call) -> bytes | None:
        try:
            await self._resolve(call)
        except (Refused, FileGone) as error:
            sentence = str(error) if isinstance(error, Refused) else self._unknown()
            return tool_result(call.envelope.id_bytes, sentence, None, modern=call.modern, is_error=True)
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:  # noqa: ARG002 - a stage; a consumer's result is the tool's
        return response

    async def _resolve(self, call: Call) -> None:
        """Put what is delivered in the place of each handle. Raises Refused, FileGone."""
        delivered = []
        for path, value in values(call.request, self._rule.argument):
            text = await self._delivered(call, value)
            if text is not None:
                delivered.append((path, text))
                self._mirrors.rewrite(call, path[2:], value, text)
        if delivered:
            call.change(*replacements(delivered))

    async def _delivered(self, call: Call, value: object) -> str | None:
        """What stands in the handle's place; None leaves the value as it is. Raises Refused, FileGone."""
        rule = self._rule
        record = None
        if isinstance(value, str):
            record = await self._record(call, value)
            if record is None and rule.plain_paths and not self._looks_like_handle(value):
                return None
        if record is None:
            raise Refused(self._unknown())
        call.defer(self._holdings.hold(record))
        return await self._deliver(call, record)

    async def _record(self, call: Call, text: str) -> FileRecord | None:
        """The record of the one handle that ``text`` is, if this call may use it."""
        rule = self._rule
        kind, handle = Kind.UPLOAD, parse_upload(text, rule.upload_scheme)
        if handle is None:
            kind, handle = Kind.ARTIFACT, parse_artifact(text, rule.artifact_scheme)
        if handle is None or handle.scope != call.scope.id:
            return None
        record = await self._holdings.find(handle.scope, kind, handle.id)
        if record is None or (kind is Kind.UPLOAD and record.server != rule.server):
            return None
        return record

    def _looks_like_handle(self, text: str) -> bool:
        schemes = (self._rule.upload_scheme, self._rule.artifact_scheme)
        return text.strip().lower().startswith(schemes)

    async def _deliver(self, call: Call, record: FileRecord) -> str:
        rule = self._rule
        file = await self._holdings.read(record)
        try:
            match rule.delivery:
                case "path":
                    return self._files.path_of(record.place)
                case "file_uri":
                    return PurePosixPath(self._files.path_of(record.place)).as_uri()
                case "url":
                    return self._links.delivery(call.base, record)
            if record.size > rule.inline_limit:
                raise Refused(
                    f"The file {record.filename} has {record.size} bytes; this tool takes files of at most "
                    f"{rule.inline_limit} bytes (max_inline_bytes of its adapter)."
                )
            text = base64.b64encode(await file.read(0, record.size)).decode()
        finally:
            file.close()
        return f"data:{record.media_type};base64,{text}" if rule.delivery == "data_uri" else text

    def _unknown(self) -> str:
        rule = self._rule
        return (
            f"{rule.argument} must hold a handle of a file that is staged here ({rule.upload_scheme}…); this is "
            f"none, or its file has expired. Call {rule.helper} to get an upload URL, upload the file there, and "
            f"pass the upload_handle of the answer as {rule.argument}."
        )
