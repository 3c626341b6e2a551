"""The artifact producer: files that a tool writes are captured, kept and told of in its result."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from adapter.errors import AdapterError
from adapter.relay.files.artifact_capture import (
    ArtifactKeeper,
    ArtifactName,
    Captured,
    artifact_name,
)
from adapter.relay.files.artifact_members import ArtifactMembers
from adapter.relay.files.artifact_resources import content
from adapter.relay.files.rounds import ARTIFACT, EARLIER, noted_earlier, noted_place
from adapter.relay.files.upload_consumer import HANDLES
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.replies import edited
from adapter.relay.stages import Call
from adapter.rules.calls.arguments import ambiguous, slot
from adapter.rules.calls.rounds import STATE, asks_for_input
from adapter.rules.files.file_records import FileKind, Place
from adapter.rules.files.filenames import stored_name
from adapter.rules.files.redaction import Redaction
from adapter.rules.files.structured_artifacts import Shown
from adapter.rules.results.tool_results import (
    is_task,
    succeeded,
    tool_result,
    with_artifact_error,
    with_artifacts,
    with_failure,
    without_paths,
)

NOT_CAPTURED = "The tool answered, but its file could not be captured."
NOT_ALL_CAPTURED = "The tool answered, but not all of its files could be captured."


@dataclass(slots=True)
class _Capture:
    """The files that are kept of a call, and how they are told of. ``written``: the tool wrote where it was told.
    ``failure`` is the sentence that says why not all is kept.
    """

    kept: list[Captured]
    shown: list[Shown]
    written: bool = False
    failure: str | None = None

    def fail(self, why: str = "") -> None:
        """Note that not all that there was is kept."""
        self.failure = f"{NOT_ALL_CAPTURED if self.kept else NOT_CAPTURED} {why}".rstrip()


@dataclass(eq=False, repr=False)
class Producer:
    """The stage of one tool. ``clock`` gives Unix time in seconds. Without ``members`` structured content lists no
    artifacts.

    ``ask`` may raise AdapterError: then nothing was called. ``answer`` does not: the tool has run, and what it said
    is not to be lost to a failure of ours.
    """

    keeper: ArtifactKeeper
    mirrors: ParamHeaders
    clock: Callable[[], float]
    members: ArtifactMembers | None = None

    def __post_init__(self) -> None:
        self._rule = rule = self.keeper.rule
        self._log = self.keeper.log
        self._files = self.keeper.files
        self._nothing_known = Redaction(self._files.roots, {})
        only_edits = rule.edits and rule.locator.mode == "none"
        self._may_name_none = (
            (rule.locator.every or only_edits) and rule.argument is None and not rule.required
        )

    # --- the request ------------------------------------------------------------------------------------------

    async def ask(self, call: Call) -> bytes | None:
        note = noted_earlier(call, ARTIFACT) or {"began": self.clock()}
        call.notes[ARTIFACT] = note
        if call.withheld is None:
            call.withheld = self._withheld(call, {})
        if self._rule.argument is None:
            return None
        await self.mirrors.check(call)
        sentence = await self._inject(call, self._rule.argument, note)
        if sentence is None:
            return None
        return tool_result(call.envelope.id_bytes, sentence, None, modern=call.modern, is_error=True)

    async def _inject(self, call: Call, argument: str, note: dict[str, Any]) -> str | None:
        """Have the tool write to a place of this call's own; else the sentence that says why it cannot be told."""
        if ambiguous(call.request, argument):
            return (
                f"{argument} can be read in more than one way here: write it exactly once in this "
                "spelling, or leave it out."
            )
        target = slot(call.request, argument)
        if target is None:
            return f"The arguments have no object or list for {argument}, which names the file to write."
        given = target.value
        if "id" not in note:
            name = artifact_name(self._rule.tool, given if isinstance(given, str) else None)
            note.update(
                id=secrets.token_hex(16), stored=stored_name(name.text), name=name.text, given=name.given
            )
        place = Place(FileKind.ARTIFACT, call.scope.id, note["id"], note["stored"])
        call.defer(partial(self._files.abandon, place))
        path = await self._files.allocate(place)
        call.request = target.filled(call.request, path)
        self.mirrors.rewrite(call, tuple(argument.split(".")), given, path)
        return None

    # --- the response -----------------------------------------------------------------------------------------

    async def answer(self, call: Call, response: bytes) -> bytes:
        place = noted_place(call.scope.id, call.notes)
        message = call.parsed(response)
        result = message.get("result")
        if is_task(result):
            # It goes on to write after this; what it leaves is the sweep's.
            return await edited(response, partial(without_paths, response, self._withheld(call, {})))
        if not succeeded(message):
            if not _goes_on(call, message, response):
                await self._let_go(place)
            return await edited(response, partial(without_paths, response, self._withheld(call, {})))
        capture = await self._capture(call, place, result)
        if not capture.written:
            await self._let_go(place)
        if capture.failure is not None and self._rule.required:
            await self.keeper.drop(record for record, _ in capture.kept)
            return await edited(
                response, partial(with_failure, response, capture.failure, self._withheld(call, {}))
            )
        if capture.kept:
            self.keeper.tell_listeners(call)
        withheld = self._withheld(call, self._uris(capture.kept))
        if capture.failure is not None:
            response = await edited(
                response, partial(with_artifact_error, response, capture.failure, withheld)
            )
            if not capture.shown:
                return response
        names: Sequence[str] = ()
        refers = False
        if self.members is not None and capture.shown and isinstance(result.get("structuredContent"), dict):
            names = await self.members.of(call)
            if names and self.members.is_for_host is not None:
                refers = await self.members.is_for_host(call)
        edit = partial(with_artifacts, response, capture.shown, withheld, names, refers=refers)
        return await edited(response, edit)

    async def _capture(self, call: Call, place: Place | None, result: Mapping[str, Any]) -> _Capture:
        capture = _Capture([], [])
        try:
            await self._find(call, place, result, capture)
        except AdapterError as error:
            self._log.warning("an artifact was not kept", tool=self._rule.tool, why=error.code)
            capture.fail(str(error))
        except Exception:
            self._log.exception("an artifact was not kept", tool=self._rule.tool)
            capture.fail()
        except asyncio.CancelledError:
            # Nobody waits any more, and a file of gigabytes should not wait for the sweep.
            if not capture.written:
                await self._let_go(place)
            raise
        else:
            if not capture.kept and not self._may_name_none:
                capture.fail()
        return capture

    async def _find(
        self, call: Call, place: Place | None, result: Mapping[str, Any], capture: _Capture
    ) -> None:
        note = call.notes[ARTIFACT]
        name = ArtifactName(note.get("name", ""), note.get("given", True))
        written = await self.keeper.written(call, place, name)
        if written is not None:
            capture.written = True
            await self._keep(call, written, capture)
        else:
            await self._keep_each(call, self.keeper.named(call, note["began"], result), capture)
        if self._rule.edits:
            await self._keep_each(call, self.keeper.edited(call), capture)

    async def _keep_each(self, call: Call, found: AsyncGenerator[Captured, None], capture: _Capture) -> None:
        async with aclosing(found) as files:
            async for captured in files:
                await self._keep(call, captured, capture)

    async def _keep(self, call: Call, captured: Captured, capture: _Capture) -> None:
        # What one result tells of is there together: a file is not evicted for the next one.
        record, limit, raw = captured.record, self._rule.raw_limit, None
        await self.keeper.hold(call, record)
        capture.kept.append(captured)
        if limit is not None and record.content.size <= limit:
            raw = await content(self.keeper.registry, record)
        capture.shown.append(self.keeper.shown(call, record, raw))

    async def _let_go(self, place: Place | None) -> None:
        """Remove what an allocated place may hold."""
        if place is not None:
            await self.keeper.registry.remove_bytes(place)

    # --- what clients see -------------------------------------------------------------------------------------

    def _uris(self, kept: Sequence[Captured]) -> dict[str, str]:
        return {path: self.keeper.uri(record) for record, path in kept if path is not None}

    def _withheld(self, call: Call, uris: Mapping[str, str]) -> Redaction:
        """Shows the URIs of artifacts, and the handles of the files that this call was given."""
        known = {**call.notes.get(HANDLES, {}), **uris}
        return Redaction(self._files.roots, known) if known else self._nothing_known


def _goes_on(call: Call, message: Mapping[str, Any], response: bytes) -> bool:
    """True where another round of the call may write to its place: its user is asked, or a later round was refused."""
    if "error" in message:
        return EARLIER in call.notes
    return STATE in response and asks_for_input(message) is not None
