"""The artifact producer: files that a tool writes are captured, kept and told of in its result.

A path that a tool names is data: it counts only where ``FileStore`` finds it to be the scope's own.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError
from adapter.files.port import FileStore, Measure, Staging
from adapter.relay.holdings import Holdings
from adapter.relay.links import Links
from adapter.relay.mirrors import Mirrors
from adapter.relay.notices import Notices
from adapter.relay.stages import Call
from adapter.rules.arguments import setting, values
from adapter.rules.filenames import default_name, stored_name
from adapter.rules.holdings import FileRecord, Kind, Place
from adapter.rules.locators import Locator, embedded, linked
from adapter.rules.media import is_text
from adapter.rules.redaction import withhold
from adapter.rules.results import Shown, tool_result, with_artifact_error, with_artifacts, without_paths
from adapter.wire.envelope import parse
from adapter.wire.handles import artifact_uri

NOTE = "artifact"
"""Where a call's notes keep the place that was allocated for it."""

CLOCK_SLACK = 1.0
"""Seconds by which a file system's clock may be behind ours: its ticks are coarse."""

NOT_CAPTURED = "The tool answered, but the file it was to produce could not be captured."


@dataclass(frozen=True, slots=True)
class Producing:
    """One artifact producer of the configuration, for one of its tools.

    ``argument`` is dotted; None: the tool is not told where to write. ``raw_limit`` is the largest artifact
    (bytes) that ``raw_output`` embeds, ``size_limit`` the largest that is captured; None: quotas decide.
    """

    server: str
    tool: str
    argument: str | None
    locator: Locator
    required: bool = False
    exposed: bool = True
    raw_output: bool = False
    raw_limit: int = 10 << 20
    downloads: bool = False
    size_limit: int | None = None
    scheme: str = "artifact://"


class Producer:
    """The stage of one tool. ``clock`` gives Unix time in seconds."""

    def __init__(
        self,
        rule: Producing,
        holdings: Holdings,
        files: FileStore,
        links: Links,
        mirrors: Mirrors,
        notices: Notices,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._rule = rule
        self._holdings = holdings
        self._files = files
        self._links = links
        self._mirrors = mirrors
        self._notices = notices
        self._clock = clock
        self._log = log

    def __repr__(self) -> str:
        return f"<Producer {self._rule.tool!r} of {self._rule.server!r}>"

    # --- the request ------------------------------------------------------------------------------------------

    async def ask(self, call: Call) -> bytes | None:
        call.notes[NOTE] = note = {"began": self._clock()}
        if self._rule.argument is not None:
            return await self._inject(call, self._rule.argument, note)
        return None

    async def _inject(self, call: Call, argument: str, note: dict[str, Any]) -> bytes | None:
        """Have the tool write to a place of this call's own; a result of its own where that cannot be said."""
        given = next((value for _, value in values(call.request, argument)), None)
        wanted = given if isinstance(given, str) else None
        name = default_name(self._rule.tool, wanted)
        place = Place(Kind.ARTIFACT, call.scope.id, secrets.token_hex(16), stored_name(name))
        call.defer(self._holdings.expect(place))
        path = await self._files.allocate(place)
        call.defer(partial(self._files.abandon, place))
        change = setting(call.request, argument, path)
        if change is None:
            await self._files.remove(place)
            sentence = f"The arguments have no place for {argument}, which names the file to write."
            return tool_result(call.envelope.id_bytes, sentence, None, modern=call.modern, is_error=True)
        call.change(change)
        self._mirrors.rewrite(call, tuple(argument.split(".")), given, path)
        note.update(id=place.id, stored=place.name, name=name)
        return None

    # --- the response -----------------------------------------------------------------------------------------

    async def answer(self, call: Call, response: bytes) -> bytes:
        message = parse(response)
        result = message.get("result") if isinstance(message, dict) else None
        place = self._allocated(call)
        if not isinstance(result, dict) or result.get("isError") is True or not _complete(result):
            if place is not None:
                await self._files.remove(place)
            return without_paths(response, self._withheld({}))
        try:
            kept = await self._capture(call, place, result)
        except AdapterError as error:
            self._log.warning("an artifact was not kept", tool=self._rule.tool, why=error.code)
            return await self._failed(call, place, response, f"{NOT_CAPTURED} {error}")
        if not kept:
            return await self._failed(call, place, response, NOT_CAPTURED)
        if self._rule.exposed:
            self._notices.resources_changed(call.scope)
        shown = [await self._shown(call, record) for record, _ in kept]
        uris = {path: self._uri(record) for record, paths in kept for path in paths}
        return with_artifacts(response, shown, self._withheld(uris))

    async def _failed(self, call: Call, place: Place | None, response: bytes, sentence: str) -> bytes:
        if place is not None:
            await self._files.remove(place)
        if self._rule.required:
            return tool_result(call.envelope.id_bytes, sentence, None, modern=call.modern, is_error=True)
        return with_artifact_error(response, sentence, self._withheld({}))

    def _allocated(self, call: Call) -> Place | None:
        note = call.notes[NOTE]
        return Place(Kind.ARTIFACT, call.scope.id, note["id"], note["stored"]) if "id" in note else None

    def _withheld(self, uris: Mapping[str, str]) -> Callable[[str], str]:
        return lambda text: withhold(text, self._files.roots, uris)

    # --- capturing --------------------------------------------------------------------------------------------

    async def _capture(
        self, call: Call, place: Place | None, result: Mapping[str, Any]
    ) -> list[tuple[FileRecord, list[str]]]:
        """What was kept, each with the paths under which the result may name it. Raises AdapterError."""
        if place is not None:
            measure = await self._files.adopt(place, self._rule.size_limit)
            if measure is not None:
                record = await self._keep(call, call.notes[NOTE]["name"], measure, place=place)
                return [(record, [self._files.path_of(place)])]
        match self._rule.locator.mode:
            case "embedded":
                return [
                    (await self._store(call, each.name, each.data, each.media_type), [])
                    for each in embedded(result)
                ]
            case "resource":
                return await self._linked(call, result)
            case "structured" | "regex":
                return await self._located(call, result)
        return []

    async def _located(self, call: Call, result: Mapping[str, Any]) -> list[tuple[FileRecord, list[str]]]:
        since = call.notes[NOTE]["began"] - CLOCK_SLACK
        for path in self._rule.locator.located(result):
            taken = await self._files.take(path, call.scope.id, since, self._rule.size_limit)
            if taken is not None:
                staging, measure = taken
                name = path.replace("\\", "/").rpartition("/")[2]
                return [(await self._keep(call, name, measure, staging=staging), [path])]
        return []

    async def _linked(self, call: Call, result: Mapping[str, Any]) -> list[tuple[FileRecord, list[str]]]:
        """Read the resources that the result links to from the upstream."""
        kept: list[tuple[FileRecord, list[str]]] = []
        if call.fetch is None:
            return kept
        for uri in linked(result):
            response = await call.fetch("resources/read", {"uri": uri})
            message = parse(response) if response is not None else None
            contents = message.get("result") if isinstance(message, dict) else None
            for each in embedded({"content": _as_blocks(contents)}):
                kept.append((await self._store(call, each.name, each.data, each.media_type), []))
        return kept

    async def _store(self, call: Call, name: str | None, data: bytes, said: str | None) -> FileRecord:
        """Keep bytes that came inside a message."""
        staging = await self._files.stage()
        try:
            await staging.write(data)
            measure = await staging.finish()
            filename = default_name(self._rule.tool, name, said)
            return await self._keep(call, filename, measure, staging=staging, said=said)
        finally:
            await staging.discard()

    async def _keep(
        self,
        call: Call,
        name: str,
        measure: Measure,
        *,
        place: Place | None = None,
        staging: Staging | None = None,
        said: str | None = None,
    ) -> FileRecord:
        try:
            return await self._holdings.keep_artifact(
                call.scope,
                self._rule.server,
                file_id=place.id if place else secrets.token_hex(16),
                filename=name,
                stored=place.name if place else stored_name(name),
                staging=staging,
                measure=measure,
                exposed=self._rule.exposed,
                said_type=said,
            )
        finally:
            if staging is not None:
                await staging.discard()

    # --- telling ----------------------------------------------------------------------------------------------

    def _uri(self, record: FileRecord) -> str:
        return artifact_uri(record.scope, record.id, record.filename, self._rule.scheme)

    async def _shown(self, call: Call, record: FileRecord) -> Shown:
        rule, uri = self._rule, self._uri(record)
        expires = self._holdings.expires_at(record)
        raw = await self._raw(record) if rule.raw_output and record.size <= rule.raw_limit else None
        return Shown(
            uri=uri,
            id=record.id,
            filename=record.filename,
            media_type=record.media_type,
            size=record.size,
            sha256=record.sha256,
            expires_at=None if expires is None else iso(expires),
            exposed=rule.exposed,
            download_url=self._links.download(call.base, record) if rule.downloads else None,
            raw=raw,
        )

    async def _raw(self, record: FileRecord) -> str | bytes:
        file = await self._holdings.read(record)
        try:
            return as_text(record, await file.read(0, record.size))
        finally:
            file.close()


def as_text(record: FileRecord, data: bytes) -> str | bytes:
    """The file's text where its type and its bytes are text, else its bytes."""
    if is_text(record.media_type):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode("utf-8")
    return data


def iso(seconds: float) -> str:
    """Unix seconds as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def _complete(result: Mapping[str, Any]) -> bool:
    """Whether this is the end of the call: no round of input (MCP 2026-07-28), no task (MCP 2025-11-25)."""
    return result.get("resultType", "complete") == "complete" and "content" in result


def _as_blocks(result: object) -> list[dict[str, Any]]:
    found = result.get("contents") if isinstance(result, dict) else None
    if not isinstance(found, list):
        return []
    return [{"type": "resource", "resource": each} for each in found if isinstance(each, dict)]
