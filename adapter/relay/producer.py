"""The artifact producer: files that a tool writes are captured, kept and told of in its result."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, StorageFailed
from adapter.files.port import FileStore, SizeLimit
from adapter.relay.capturing import Allocated, ArtifactName, Captured, Capturing, artifact_name
from adapter.relay.holdings import Holdings
from adapter.relay.links import Links
from adapter.relay.mirrors import Mirrors
from adapter.relay.notices import Notices
from adapter.relay.stages import Call
from adapter.relay.telling import Telling
from adapter.rules.ambiguity import ambiguous
from adapter.rules.arguments import slot
from adapter.rules.filenames import stored_name
from adapter.rules.holdings import Kind, Place
from adapter.rules.locators import Locator
from adapter.rules.redaction import Redaction
from adapter.rules.results import (
    Shown,
    succeeded,
    tool_result,
    with_artifact_error,
    with_artifacts,
    with_failure,
    without_paths,
)
from adapter.wire.envelope import parse

NOTE = "artifact"
"""Where a call's notes keep when it began and the place that was allocated for it."""

NOT_CAPTURED = "The tool answered, but the file it was to produce could not be captured."
NOT_ALL_CAPTURED = "The tool answered, but not every file it produced could be captured."


@dataclass(frozen=True, slots=True)
class Producing:
    """One artifact producer of the configuration, for one of its tools.

    ``argument`` is dotted; None: the tool is not told where to write. ``raw_limit`` is the largest artifact
    (bytes) that ``raw_output`` embeds, ``size_limit`` the largest that is captured; None: quotas decide.
    ``patience`` is how long capturing may take in seconds, as ``core.defaults.tool_call_timeout_seconds`` has it;
    None sets no limit.
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
    size_limit: SizeLimit | None = None
    patience: float | None = None
    scheme: str = "artifact://"


@dataclass(slots=True)
class _Capture:
    """What is kept of a call, how it is told of, whether it was ``written`` where the tool was told, and the sentence
    that says what is not kept.
    """

    kept: list[Captured]
    shown: list[Shown]
    written: bool = False
    failure: str | None = None

    def fail(self, why: str = "") -> None:
        """Note that not all that there was is kept."""
        self.failure = f"{NOT_ALL_CAPTURED if self.kept else NOT_CAPTURED} {why}".rstrip()


class Producer:
    """The stage of one tool. ``clock`` gives Unix time in seconds.

    ``ask`` may raise AdapterError: then nothing was called. ``answer`` does not: the tool has run, and what it said
    is not to be lost to a failure of ours.
    """

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
        self._mirrors = mirrors
        self._notices = notices
        self._clock = clock
        self._log = log
        self._nothing_known = Redaction(files.roots, {})
        self._capturing = Capturing(
            holdings, files, rule.locator, rule.server, rule.tool, rule.exposed, rule.size_limit
        )
        self._telling = Telling(
            holdings,
            links if rule.downloads else None,
            scheme=rule.scheme,
            raw_limit=rule.raw_limit if rule.raw_output else None,
        )

    def __repr__(self) -> str:
        return f"<Producer {self._rule.tool!r} of {self._rule.server!r}>"

    # --- the request ------------------------------------------------------------------------------------------

    async def ask(self, call: Call) -> bytes | None:
        call.notes[NOTE] = note = {"began": self._clock()}
        call.withheld = self._withheld({})
        if self._rule.argument is None:
            return None
        await self._mirrors.check(call)
        sentence = await self._inject(call, self._rule.argument, note)
        if sentence is None:
            return None
        return tool_result(call.envelope.id_bytes, sentence, None, modern=call.modern, is_error=True)

    async def _inject(self, call: Call, argument: str, note: dict[str, Any]) -> str | None:
        """Have the tool write to a place of this call's own; else the sentence that says why it cannot be told."""
        if ambiguous(call.request, argument):
            return f"{argument} can be read in more than one way here; name it once, spelled exactly so, or not at all."
        told = slot(call.request, argument)
        if told is None:
            return f"The arguments have no place for {argument}, which names the file to write."
        given = told.value
        name = artifact_name(self._rule.tool, given if isinstance(given, str) else None)
        place = Place(Kind.ARTIFACT, call.scope.id, secrets.token_hex(16), stored_name(name.text))
        call.defer(self._holdings.expect(place))
        call.defer(partial(self._files.abandon, place))
        path = await self._files.allocate(place)
        call.request = told.filled(call.request, path)
        self._mirrors.rewrite(call, tuple(argument.split(".")), given, path)
        note.update(id=place.id, stored=place.name, name=name.text, given=name.given)
        return None

    # --- the response -----------------------------------------------------------------------------------------

    async def answer(self, call: Call, response: bytes) -> bytes:
        allocated = self._allocated(call)
        message = parse(response)
        result = message.get("result")
        if _is_task(result):
            # It goes on to write after this; what it leaves is the sweep's.
            return without_paths(response, self._withheld({}))
        if not succeeded(message):
            await self._let_go(allocated.place)
            return without_paths(response, self._withheld({}))
        capture = await self._capture(call, allocated, result)
        if not capture.written:
            await self._let_go(allocated.place)
        if capture.failure is not None and self._rule.required:
            await self._drop(capture)
            return with_failure(response, capture.failure, self._withheld({}))
        if capture.kept and self._rule.exposed:
            self._notices.resources_changed(call.scope)
        withheld = self._withheld(self._uris(capture.kept))
        if capture.failure is not None:
            response = with_artifact_error(response, capture.failure, withheld)
        return with_artifacts(response, capture.shown, withheld)

    def _allocated(self, call: Call) -> Allocated:
        note = call.notes[NOTE]
        if "id" not in note:
            return Allocated(None, ArtifactName("", given=False), note["began"])
        place = Place(Kind.ARTIFACT, call.scope.id, note["id"], note["stored"])
        return Allocated(place, ArtifactName(note["name"], note.get("given", True)), note["began"])

    async def _capture(self, call: Call, allocated: Allocated, result: Mapping[str, Any]) -> _Capture:
        capture = _Capture([], [])
        try:
            await self._find_in_time(call, allocated, result, capture)
        except AdapterError as error:
            self._log.warning("an artifact was not kept", tool=self._rule.tool, why=error.code)
            capture.fail(str(error))
        except Exception:
            self._log.exception("an artifact was not kept", tool=self._rule.tool)
            capture.fail()
        except asyncio.CancelledError:
            # Nobody waits any more, and a file of gigabytes should not wait for the sweep.
            if not capture.written:
                await self._let_go(allocated.place)
            raise
        else:
            if not capture.kept:
                capture.fail()
        return capture

    async def _find_in_time(
        self, call: Call, allocated: Allocated, result: Mapping[str, Any], capture: _Capture
    ) -> None:
        patience = self._rule.patience
        try:
            async with asyncio.timeout(patience) as deadline:
                await self._find(call, allocated, result, capture)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise StorageFailed(
                f"Reading it took longer than the {patience:g} s that core.defaults.tool_call_timeout_seconds allows."
            ) from None

    async def _find(
        self, call: Call, allocated: Allocated, result: Mapping[str, Any], capture: _Capture
    ) -> None:
        written = await self._capturing.written(call, allocated)
        if written is not None:
            capture.written = True
            await self._keep(call, written, capture)
            return
        async with aclosing(self._capturing.named(call, allocated.began, result)) as files:
            async for captured in files:
                await self._keep(call, captured, capture)

    async def _keep(self, call: Call, captured: Captured, capture: _Capture) -> None:
        # What one result tells of is there together: a file is not evicted for the next one.
        call.defer(self._holdings.hold(captured.record))
        capture.kept.append(captured)
        capture.shown.append(await self._telling.shown(captured.record, call.base))

    async def _drop(self, capture: _Capture) -> None:
        """Nobody will be told of what was kept."""
        for record, _ in capture.kept:
            try:
                await self._holdings.drop(record)
            except AdapterError as error:
                self._log.warning("an artifact stays until it expires", tool=self._rule.tool, why=error.code)

    async def _let_go(self, place: Place | None) -> None:
        """Remove what an allocated place may hold; where the disk refuses, the sweep is left to try again."""
        if place is not None:
            try:
                await self._files.remove(place)
            except AdapterError as error:
                self._log.warning("a tool's file could not be removed", tool=self._rule.tool, why=error.code)

    # --- telling ----------------------------------------------------------------------------------------------

    def _uris(self, kept: Sequence[Captured]) -> dict[str, str]:
        return {path: self._telling.uri(record) for record, path in kept if path is not None}

    def _withheld(self, uris: Mapping[str, str]) -> Redaction:
        return Redaction(self._files.roots, uris) if uris else self._nothing_known


def _is_task(result: object) -> bool:
    """Whether the call goes on in the background (MCP 2025-11-25, "Tasks"), so that this is not its result."""
    return isinstance(result, dict) and isinstance(result.get("task"), dict) and "content" not in result
