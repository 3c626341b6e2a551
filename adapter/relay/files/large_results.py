"""The stage that keeps what is too large of a tool's result as artifacts of the caller, and shows how it begins.

It is a stage of the relay, around the plan of a tool: so it stands around hosted tools too, what a cache keeps is
whole, and it sees the results of tasks. ``limits.egress`` comes behind it, so it keeps that too where both are set.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias, TypeVar

from adapter.errors import AdapterError, BadJson
from adapter.relay.background import in_turns
from adapter.relay.files.artifact_capture import ArtifactKeeper
from adapter.relay.replies import long_value
from adapter.relay.sessions.session_map import ClientFact
from adapter.relay.stages import Call, Stage, StageEntry, Stages
from adapter.relay.tools.catalogue_reader import Offered
from adapter.rules.calls.rounds import member_of
from adapter.rules.clients.hosts import SMALLEST, host_limit
from adapter.rules.files.file_records import FileKind, FileRecord
from adapter.rules.last_used import LastUsed
from adapter.rules.results.large_results import (
    STRUCTURED,
    KeptPart,
    LargePart,
    ResultPlace,
    Terms,
    chosen,
    listing,
    result_of,
    short_structured,
    structured_part,
    without_rest,
)
from adapter.rules.results.short_json import limited
from adapter.rules.results.tool_results import is_task, rpc_result
from adapter.rules.schema.checker import compile_schema
from adapter.rules.schema.cost import OutOfSteps, SchemaInvalid, SchemaTooLarge
from adapter.rules.text.unicode import LONGEST_NAME
from adapter.wire.envelope import parse
from adapter.wire.piecewise import one_piece

T = TypeVar("T")


class TaskCall(NamedTuple):
    """The ``tool`` of a task, and the artifacts that were ``kept`` of its result, by the digests of their content: who
    asks for the result again is told of the same ones.
    """

    tool: str
    kept: dict[bytes, str]


TaskTools: TypeAlias = LastUsed[tuple[str, str], TaskCall]
"""Tasks by the scope of their caller and their id."""

LONGEST_TASK = 16 << 10
"""Bytes of a result that may be a task: it has not much more than an id."""

SCHEMA_PARTS = 3_000
STEPS_OF_CHECK = 50_000
"""The parts of a schema that shorter values are checked by, and the steps of one check: each takes some milliseconds,
for which the interpreter is held. By a larger one nothing is known to fit.
"""

TASK_ID = b'"taskId"'
ANY_TOOL = "*"


class LargeResultRule(NamedTuple):
    """What is done with the results of one tool. ``hosts``: a host that shows less gets less. ``egress`` is the most
    bytes of a result that leave, None for any number.
    """

    terms: Terms
    hosts: bool = True
    egress: int | None = None


@dataclass(eq=False, repr=False)
class LargeResultStage(Stage):
    """The stage of one tool, whose ``tasks`` it remembers. Where something cannot be kept, the result leaves whole.

    ``clients`` knows ``clientInfo`` of those that call, ``offers`` the tools of their server; None where no tool of it
    has a schema of its output.
    """

    rule: LargeResultRule
    keeper: ArtifactKeeper
    clients: ClientFact[Mapping[str, str]]
    offers: Callable[[Call], Awaitable[Offered]] | None
    tasks: TaskTools

    async def answer(self, call: Call, response: bytes) -> bytes:
        if len(response) <= LONGEST_TASK and TASK_ID in response:
            self._note_task(call, parse(response).get("result"))
        response = await self.shortened(call, response)
        egress = self.rule.egress
        if egress is None or len(response) <= egress:
            return response
        result = (await long_value(response)).get("result")
        if not isinstance(result, dict):
            return response
        left = limited(result, egress)
        return response if left is result else rpc_result(call.envelope.id_bytes, left)

    def _note_task(self, call: Call, result: Any) -> None:
        """Remember whose the result of a task will be."""
        if is_task(result):
            # In 2025-11-25 the task is a member of the result, in the extension for 2026-07-28 the result itself.
            task = result.get("task") or result
            number = task.get("taskId") if isinstance(task, dict) else None
            if isinstance(number, str) and len(number) <= LONGEST_NAME:
                self.tasks.put((call.scope.id, number), TaskCall(self.keeper.rule.tool, {}))

    async def shortened(
        self,
        call: Call,
        response: bytes,
        path: tuple[str, ...] = (),
        earlier: dict[bytes, str] | None = None,
    ) -> bytes:
        """The response with artifacts in the place of what is too large in the result at ``path`` in it; those of
        ``earlier`` that still hold it.
        """
        terms = self.rule.terms
        if len(response) <= (min(SMALLEST, terms.above) if self.rule.hosts else terms.above):
            return response
        try:
            return await self._shortened(call, response, path, earlier)
        except AdapterError as error:
            self.keeper.log.warning("a large result was not kept", tool=self.keeper.rule.tool, why=error.code)
        except Exception:
            self.keeper.log.exception("a large result was not kept", tool=self.keeper.rule.tool)
        return response

    async def _shortened(
        self, call: Call, response: bytes, path: tuple[str, ...], earlier: dict[bytes, str] | None
    ) -> bytes:
        result = await _beside(response, partial(result_of, response, path))
        if result is None:
            return response
        terms = await self._terms(call)
        if result.size <= terms.above:
            return response
        short = await self._structured(call, response, result, terms)
        part = structured_part(result, terms) if short is not None else None
        parts = await _beside(response, partial(chosen, response, result, part, terms))
        if not parts:
            return response
        records: list[FileRecord] = []
        known = {} if earlier is None else earlier
        try:
            kept = [each async for each in self._kept(call, response, parts, short, known, records)]
            shown = await _beside(response, partial(without_rest, response, result, kept, terms, path))
        except BaseException:
            await self.keeper.drop(records)
            raise
        if records:
            self.keeper.tell_listeners(call)
        return shown

    async def _terms(self, call: Call) -> Terms:
        terms = self.rule.terms
        if not self.rule.hosts:
            return terms
        client = await self.clients.of(call)
        if host_limit(client) is None:
            return terms
        try:
            definition = await self._definition(call)
        except AdapterError:
            definition = None
        most = host_limit(client, definition)
        above = min(terms.above, terms.above if most is None else most)
        return terms._replace(above=above, preview=min(terms.preview, above // 2))

    async def _definition(self, call: Call) -> Mapping[str, Any] | None:
        """The definition of the tool as the client sees it, None where there is none. Raises AdapterError."""
        offered = None if self.offers is None else await self.offers(call)
        raw = None if offered is None else offered.definition(self.keeper.rule.tool)
        return None if raw is None else parse(raw)

    async def _structured(
        self, call: Call, response: bytes, result: ResultPlace, terms: Terms
    ) -> tuple[bytes, str | None] | None:
        """What takes the place of structured content. Without the tool's schema, nothing is known to fit it."""
        part = structured_part(result, terms)
        if part is None:
            return None
        try:
            definition = await self._definition(call)
        except AdapterError:
            return None
        if definition is None and self.offers is not None:
            return None
        schema = None if definition is None else definition.get("outputSchema")
        return await _beside(response, lambda: short_structured(response, part, terms, _fitting(schema)))

    async def _kept(
        self,
        call: Call,
        response: bytes,
        parts: Sequence[LargePart],
        short: tuple[bytes, str | None] | None,
        earlier: dict[bytes, str],
        records: list[FileRecord],
    ) -> AsyncIterator[KeptPart]:
        """Keep each part that is not one of ``earlier``, which then has all; ``records`` gets the new files. Raises
        AdapterError.
        """
        known = dict(earlier)
        earlier.clear()
        for part in parts:
            data, media_type = await _beside(response, partial(part.file, response))
            digest = (await _beside(data, partial(sha256, data))).digest()
            record, file_id = None, known.get(digest)
            if file_id is not None:
                record = await self.keeper.registry.find(call.scope.id, FileKind.ARTIFACT, file_id)
            if record is None:
                record = await self.keeper.store(call, part.name, data, media_type)
                records.append(record)
            earlier[digest] = record.id
            await self.keeper.hold(call, record)
            shown = self.keeper.shown(call, record)
            value = listing(*short, shown) if short is not None and part.path == STRUCTURED else None
            yield KeptPart(part, data, shown, value)


class TaskResultStage(Stage):
    """The stage of ``tasks/result`` and ``tasks/get``, which have the result of a call, at ``path`` in their own.

    A task that is not known, such as one of another replica, counts as one of a tool that only the glob ``*`` names.
    """

    def __init__(self, large: LargeResults, *path: str) -> None:
        self._large = large
        self._path = path

    async def answer(self, call: Call, response: bytes) -> bytes:
        key = (call.scope.id, str(member_of(call.request, ("params", "taskId")))[:LONGEST_NAME])
        task = self._large.tasks.get(key) or TaskCall(ANY_TOOL, {})
        stage = self._large.stage_of(task.tool)
        if stage is None:
            return response
        shown = await stage.shortened(call, response, self._path, task.kept)
        if task.kept:
            self._large.tasks.put(key, task)
        return shown


class LargeResults:
    """The stages of one server's tools. ``stage_of`` gives that of a tool, None for a tool without. ``tasks`` are the
    tools of the tasks that were begun here.
    """

    def __init__(self, stage_of: Callable[[str], LargeResultStage | None], tasks: TaskTools) -> None:
        self.stage_of = stage_of
        self.tasks = tasks

    def entries(self) -> list[StageEntry]:
        """The stages of what brings results beside calls."""
        return [
            StageEntry("tasks/result", "large", TaskResultStage(self)),
            StageEntry("tasks/get", "large", TaskResultStage(self, "result")),
        ]

    def of(self, tool: str, behind: Stages) -> Stages:
        """The stages of a tool: its own here, if it has one, and those ``behind`` it."""
        stage = None if len(tool) > LONGEST_NAME else self.stage_of(tool)
        return behind if stage is None else (stage, *behind)


def _fitting(schema: object) -> Callable[[Any], bool]:
    """Return the test whether a value is allowed by the schema that the client knows; without one all are."""
    if not isinstance(schema, Mapping):
        return lambda _: True
    try:
        checker = compile_schema(schema, parts=SCHEMA_PARTS, large=False)
    except (SchemaInvalid, SchemaTooLarge):
        return lambda _: False

    def fits(value: Any) -> bool:
        try:
            return not checker.judged(value, steps=STEPS_OF_CHECK).faults
        except OutOfSteps:
            return False

    return fits


async def _beside(response: bytes, work: Callable[[], T]) -> T:
    """Do work that looks through a response; in a thread where that is large."""
    try:
        return await in_turns(one_piece(work, len(response)))
    except ValueError:
        raise BadJson from None
