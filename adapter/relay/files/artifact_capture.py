"""Find and keep what a tool produced: at the place it was told, in its result, or where its result says.

A path that a tool names is data: it counts only if ``FileStore`` finds that it is the scope's own.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from adapter.errors import AdapterError, BadJson, StorageFailed
from adapter.files.port import CaptureLimit, Measure, StagedFile
from adapter.relay.files.artifact_resources import iso
from adapter.relay.files.file_registry import FileRegistry
from adapter.relay.files.file_transactions import NewFile
from adapter.relay.files.rounds import COPIES, EDITED
from adapter.relay.files.signed_urls import Credentials
from adapter.relay.files.upload_consumer import HANDLES
from adapter.relay.notifications import Notifications
from adapter.relay.stages import Call
from adapter.rules.files.file_records import FileKind, FileRecord, Place
from adapter.rules.files.filenames import default_name, names_a_file, stored_name
from adapter.rules.files.locators import Locator, embedded, length, linked
from adapter.rules.files.media_types import media_type, named_after_type
from adapter.rules.files.structured_artifacts import Shown, ShownFile
from adapter.wire.envelope import list_at, parse
from adapter.wire.signed_urls import artifact_uri

Result = Mapping[str, Any]

AT_ONCE = 16 << 10
"""Characters of text that are searched for paths on the event loop, in some milliseconds; more goes to a thread."""

LONGEST_NAME = 255
"""Bytes of UTF-8 above which an artifact is called by the name it is stored under: it is said several times."""


class ArtifactName(NamedTuple):
    """The name of an artifact. ``given``: by the caller or its tool; else it is a default, whose extension follows
    from what is found in the file.
    """

    text: str
    given: bool

    def recorded(self, measure: Measure, said: str | None) -> str:
        """The name under which a file is kept; ``said`` is the media type that its sender claims."""
        if self.given:
            return self.text
        return named_after_type(self.text, media_type(self.text, measure.head, said))


class Captured(NamedTuple):
    """The record of the file that is kept, and the path by which the result may name it."""

    record: FileRecord
    path: str | None = None


@dataclass(frozen=True, slots=True)
class ProducerRule:
    """One artifact producer of the configuration, for one of its tools.

    ``argument`` is dotted; None: the tool is not told where to write. ``locator`` finds the file in the result.
    ``edits``: what it makes of the files that it is given is captured too. ``required``: a call whose file cannot be
    captured fails. ``limit``: the largest file that is captured; None: quotas decide.

    Of an artifact, ``exposed``: it is listed as a resource. ``downloads``: the result has a link to it. ``raw_limit``:
    the size in bytes up to which the result holds the file itself; None: it never does. ``scheme`` begins its URI.
    """

    server: str
    tool: str
    argument: str | None
    locator: Locator
    edits: bool = False
    required: bool = False
    limit: CaptureLimit | None = None
    exposed: bool = True
    downloads: bool = False
    raw_limit: int | None = None
    scheme: str = "artifact://"


@dataclass(eq=False, repr=False)
class ArtifactKeeper:
    """Keeps what one tool of one server produces, and tells of it."""

    rule: ProducerRule
    registry: FileRegistry
    links: Credentials
    notifications: Notifications

    def __post_init__(self) -> None:
        self.files, self.log = self.registry.cache.files, self.registry.log

    async def written(self, call: Call, place: Place | None, name: ArtifactName) -> Captured | None:
        """The file at the place that the tool was told, if it wrote one there. Raises AdapterError for one that was
        there and cannot be kept."""
        measure = None if place is None else await self.files.adopt(place, self.rule.limit)
        if place is None or measure is None:
            return None
        rule = self.rule
        file = NewFile(rule.server, name.recorded(measure, None), measure, exposed=rule.exposed)
        record = await self.registry.keep_artifact(call.scope, place, file, None)
        return Captured(record, self.files.path_of(place))

    async def named(self, call: Call, began: float, result: Result) -> AsyncGenerator[Captured, None]:
        """Each file that the result holds or names, when it is kept. Raises as ``written`` does."""
        match self.rule.locator.mode:
            case "embedded":
                for each in embedded(result):
                    yield Captured(await self.store(call, each.name, each.data, each.media_type))
            case "resource":
                async for record in self._linked(call, result):
                    yield Captured(record)
            case "structured" | "regex":
                async with aclosing(self._located(call, began, result)) as files:
                    async for captured in files:
                        yield captured
                        if not self.rule.locator.every:
                            return

    async def edited(self, call: Call) -> AsyncGenerator[Captured, None]:
        """Each copy of a file that the tool has changed, when it is kept under that file's name. Raises as ``written``
        does, but in the end: what is kept of one file does not hang on the others."""
        failure: AdapterError | None = None
        kept = call.notes.get(EDITED, ())
        for key, copy in call.notes.get(COPIES, {}).items():
            if key not in kept:
                continue
            try:
                captured = await self._edited(call, key, copy)
            except AdapterError as error:
                failure = failure or error
                continue
            if captured is not None:
                yield captured
        if failure is not None:
            raise failure

    async def _edited(self, call: Call, key: str, copy: str) -> Captured | None:
        """The copy of one file, None where it is as it was."""
        scope_id, kind, file_id = key.split("/")
        given = await self.registry.find(scope_id, FileKind(kind), file_id)
        staging = None if given is None else await self.files.take_copy(given.place, copy, self.rule.limit)
        if given is None or staging is None:
            raise StorageFailed("A file is no longer where the tool was given it.")
        if staging.measure.sha256 == given.content.sha256:
            await staging.discard()
            return None
        name = ArtifactName(given.filename, given=True)
        record = await self._keep(call, name, staging, given.content.media_type)
        return Captured(record, self.files.path_of(given.place, copy))

    async def _located(self, call: Call, began: float, result: Result) -> AsyncGenerator[Captured, None]:
        if length(result) <= AT_ONCE:
            paths = self.rule.locator.located(result)
        else:
            paths = await asyncio.to_thread(self.rule.locator.located, result)
        # A copy that the tool was given is as new as what it produced, and may lie where that does.
        own = {PurePosixPath(path).parts[-2:] for path in call.notes.get(HANDLES, {})}
        for path in paths:
            if own and PurePosixPath(path).parts[-2:] in own:
                continue
            staging = await self.files.take(path, call.scope.id, began, self.rule.limit)
            if staging is not None:
                name = artifact_name(self.rule.tool, path)
                yield Captured(await self._keep(call, name, staging), path)

    async def _linked(self, call: Call, result: Result) -> AsyncIterator[FileRecord]:
        """Read the resources that the result links to from the upstream."""
        if call.fetch is None:
            return
        for uri in linked(result):
            response = await call.fetch("resources/read", {"uri": uri})
            contents = _contents(response) if response is not None else []
            for each in embedded({"content": [{"type": "resource", "resource": one} for one in contents]}):
                yield await self.store(call, each.name, each.data, each.media_type)

    async def store(self, call: Call, name: str | None, data: bytes, said: str | None) -> FileRecord:
        """Keep bytes that came inside a message. Raises AdapterError."""
        if self.rule.limit is not None:
            self.rule.limit.check(len(data))
        staging = self.files.stage()
        try:
            await staging.write(data)
            await staging.finish()
            return await self._keep(call, artifact_name(self.rule.tool, name, said), staging, said)
        finally:
            await staging.discard()

    async def _keep(
        self, call: Call, name: ArtifactName, staging: StagedFile, said: str | None = None
    ) -> FileRecord:
        """Keep a finished file at a place of its own. On any failure it is removed."""
        try:
            measure, rule = staging.measure, self.rule
            file = NewFile(rule.server, name.recorded(measure, said), measure, said, rule.exposed)
            place = Place(FileKind.ARTIFACT, call.scope.id, secrets.token_hex(16), stored_name(file.filename))
            return await self.registry.keep_artifact(call.scope, place, file, staging)
        finally:
            await staging.discard()

    # --- what is kept -----------------------------------------------------------------------------------------

    async def hold(self, call: Call, record: FileRecord) -> None:
        """Do not let a file go before the call is over. Raises FileGone, StoreUnavailable."""
        call.defer(await self.registry.hold(record))

    async def drop(self, records: Iterable[FileRecord]) -> None:
        """Let files go of which nobody will be told."""
        for record in records:
            try:
                await self.registry.drop(record)
            except AdapterError as error:
                self.log.warning("an artifact stays until it expires", tool=self.rule.tool, why=error.code)

    def tell_listeners(self, call: Call) -> None:
        """Tell clients that there is another resource, if it is one."""
        if self.rule.exposed:
            self.notifications.resources_changed(call.scope)

    def uri(self, record: FileRecord) -> str:
        return artifact_uri(record.scope, record.id, record.filename, self.rule.scheme)

    def shown(self, call: Call, record: FileRecord, raw: str | bytes | None = None) -> Shown:
        """The file as the result of this call tells of it."""
        found, expires = record.content, self.registry.expires_at(record)
        return Shown(
            self.uri(record),
            record.id,
            ShownFile(record.filename, found.media_type, found.size, found.sha256),
            None if expires is None else iso(expires),
            record.exposed,
            self.links.download(call.origin.base, record) if self.rule.downloads else None,
            raw,
        )


@lru_cache(512)
def artifact_name(tool: str, given: str | None, media_type: str | None = None) -> ArtifactName:
    """The name of an artifact, see ``default_name``; always a text that every reader of JSON takes."""
    # A lone surrogate, out of an argument or a directory, would cost strict readers the whole result.
    name = default_name(tool, given, media_type).encode("utf-8", "replace").decode("utf-8")
    text = name if len(name.encode()) <= LONGEST_NAME else stored_name(name)
    return ArtifactName(text, names_a_file(given))


def _contents(response: bytes) -> list[Any]:
    """The contents of an answer to ``resources/read``; empty if it is no such answer."""
    try:
        return list_at(parse(response), "result", "contents")
    except BadJson:
        return []
