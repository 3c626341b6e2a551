"""The check of a call's arguments against the inputs of its tool; a caller reads all faults at once.

Hosted tools declare inputs, and arguments are coerced into these. Tools of upstreams have a JSON Schema, and
arguments that fit it are passed on exactly as they came.

Checks of values against JSON Schemas: small ones here, all others in a process of their own.

Schema and value may come from strangers. On the event loop a check takes STEPS_AT_ONCE steps at most, some
milliseconds; one that may need more is made in the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import orjson
from structlog.typing import FilteringBoundLogger

from adapter.errors import LimitReached
from adapter.pipeline.call import Forward, InThread, PlannedCall
from adapter.pipeline.failures import Outcome, StageFailed
from adapter.rules.calls.input_schemas import MOST_VALUES, DeclaredInputs, too_long, too_many
from adapter.rules.calls.inputs import InputsRefused
from adapter.rules.calls.tool_api import as_plain
from adapter.rules.last_used import LastUsed, Weight
from adapter.rules.presenters.presenters import SELECT
from adapter.rules.results import refusals
from adapter.rules.results.refusals import Fault, uncheckable, wrong_type
from adapter.rules.schema.checker import Checker, compile_schema, holds_infinity
from adapter.rules.schema.cost import STEPS, OutOfSteps, SchemaInvalid, SchemaTooLarge, weight
from adapter.rules.text.json_values import NotJson
from adapter.wire.envelope import ODD_VALUES

STEPS_AT_ONCE = 20_000
"""Steps of one check on the event loop."""

PARTS_AT_ONCE = 3_000
"""Parts of a schema that are looked at on the event loop."""

KEPT = 64
"""Schemas that stay compiled for those who ask by themselves."""

KEPT_WEIGHT = 100_000
"""What these may weigh together, though always the last one stays; about ten megabytes. See weight."""

TOLD = 10_000
TOLD_AT_ONCE = 5
"""Patterns that nobody judges of which the log is told, altogether and for one check."""


_ENCODER = json.JSONEncoder(separators=(",", ":"))


class CheckVerdict(NamedTuple):
    """The result of a check elsewhere: faults, and patterns that were not looked at; or the reason for no result.

    ``invalid`` is a sentence about the schema, ``exceeded`` one about the check.
    """

    faults: Sequence[Fault] = ()
    unjudged: Mapping[str, str] = {}
    invalid: str | None = None
    exceeded: str | None = None


class CheckOwner(NamedTuple):
    """The owner of a check: for one server, one check is made at a time, and its callers take turns."""

    server: str
    principal: str


class Elsewhere(Protocol):
    """The place where large checks are made."""

    async def judge(self, owner: CheckOwner, schema: bytes, value: bytes, *, strict: bool) -> CheckVerdict:
        """Judge a value by a schema, both JSON. Raises LimitReached when too many of the owner's wait."""


Tell = Callable[[str, Mapping[str, str]], None]


@dataclass(slots=True)
class SchemaCheck:
    """One schema of ``server``, ready to check values by. Made by SchemaChecks."""

    schema: Mapping[str, Any]
    server: str
    strict: bool
    elsewhere: Elsewhere
    tell: Tell
    checker: Checker | None
    """None for a schema that is always judged by elsewhere."""

    _written: bytes | None = None

    async def faults(self, value: Any, principal: str) -> Sequence[Fault]:
        """Return all faults of a caller's value; a check that takes too much is a fault too.

        Raises SchemaInvalid, and LimitReached when too many checks wait.
        """
        if self.checker is not None:
            try:
                judgement = self.checker.judged(value, steps=STEPS_AT_ONCE)
            except OutOfSteps:
                pass
            else:
                self.tell(self.server, self.checker.unjudged)
                return judgement.faults
        return await self._judged_elsewhere(value, CheckOwner(self.server, principal))

    async def _judged_elsewhere(self, value: Any, owner: CheckOwner) -> Sequence[Fault]:
        if self._written is None:
            self._written = await asyncio.to_thread(written, self.schema)
        given = await asyncio.to_thread(written, value)
        verdict = await self.elsewhere.judge(owner, self._written, given, strict=self.strict)
        self.tell(self.server, verdict.unjudged)
        if verdict.invalid is not None:
            raise SchemaInvalid(verdict.invalid)
        return verdict.faults if verdict.exceeded is None else [uncheckable(verdict.exceeded)]


class _Kept(NamedTuple):
    """A check with the object that it was made of: while that is kept, no other object has its id."""

    schema: Any
    check: SchemaCheck
    weight: Weight


class SchemaChecks:
    """Makes SchemaCheck of schemas; ``log`` gets one line for each pattern that cannot be judged."""

    def __init__(self, elsewhere: Elsewhere, log: FilteringBoundLogger) -> None:
        self._elsewhere = elsewhere
        self._log = log
        self._kept: LastUsed[int, _Kept] = LastUsed(KEPT, KEPT_WEIGHT, lambda entry: entry.weight)
        self._told: set[int] = set()

    def __repr__(self) -> str:
        return f"<SchemaChecks: {len(self._kept)} kept>"

    def of(self, schema: Mapping[str, Any], server: str, *, strict: bool = False) -> SchemaCheck:
        """Return the check of a schema, compiled if that is little work; see compile_schema. Raises SchemaInvalid."""
        checker: Checker | None
        try:
            checker = compile_schema(schema, strict=strict, parts=PARTS_AT_ONCE, large=False)
        except SchemaTooLarge:
            checker = None
        return SchemaCheck(schema, server, strict, self._elsewhere, self._tell, checker)

    def known(self, schema: Any, server: str, *, read: bool = True) -> SchemaCheck:
        """Return the check of a tool's schema; for one and the same object it is made once, as long as it is one of
        the last. A schema that was not ``read`` from JSON may hold values of any kind. Raises SchemaInvalid, also
        for what is no JSON object.
        """
        entry = self._kept.get(id(schema))
        if entry is not None and entry.check.server == server:
            return entry.check
        usable = schema if read and isinstance(schema, dict) else _plain(schema)
        check = self.of(usable, server)
        self._kept.put(id(schema), _Kept(schema, check, Weight(id(schema), weight(usable, KEPT_WEIGHT))))
        return check

    def _tell(self, server: str, unjudged: Mapping[str, str]) -> None:
        lines = 0
        for pattern, why in unjudged.items():
            # Only a hash of it: a pattern may be as long as a schema.
            key = hash((server, pattern))
            if key in self._told or len(self._told) >= TOLD or lines >= TOLD_AT_ONCE:
                continue
            self._told.add(key)
            lines += 1
            self._log.warning("a pattern of a schema is not judged", server=server, pattern=pattern, why=why)


def _plain(schema: Any) -> Mapping[str, Any]:
    """A schema as JSON has it: a host's may be an object with members of any kind."""
    try:
        plain = as_plain(schema)
    except NotJson as error:
        raise SchemaInvalid(str(error)) from None
    if not isinstance(plain, dict):
        raise SchemaInvalid("The tool's schema is not a JSON object.")
    return plain


def quickly_written(value: Any) -> bytes | None:
    """Return a schema or a value as JSON, None if that takes more than some milliseconds."""
    try:
        return orjson.dumps(dict(value) if isinstance(value, Mapping) else value)
    except (orjson.JSONEncodeError, RecursionError):
        return None


def written(value: Any) -> bytes:
    """Return any schema or value as JSON. Raises SchemaInvalid for one that is nested too deeply."""
    quick = quickly_written(value)
    # JSON of more values is refused where it holds such numbers.
    if quick is not None and not (b"null" in quick and holds_infinity(value, ODD_VALUES)):
        return quick
    # Lone surrogates and big integers are legal. In pieces, so that other threads have their turns meanwhile.
    try:
        return "".join(map(_legal, _ENCODER.iterencode(value))).encode()
    except (RecursionError, TypeError, ValueError):
        raise SchemaInvalid("The schema, or the value, is nested too deeply.") from None


def _legal(piece: str) -> str:
    # Texts end with a quotation mark.
    return piece.removesuffix("Infinity") + "1e999" if piece.endswith("Infinity") else piece


SCHEMAS_KEPT = 8
"""Compiled schemas of one tool: it has one, and for a while the one before for those who were pinned to it."""

SchemaOf = Callable[[PlannedCall], Awaitable[Mapping[str, Any] | None]]
"""The JSON Schema of the called tool's arguments, None where it is not known."""


@dataclass(eq=False)
class CoercionStage:
    """A PlanStage: arguments become the values of the declared inputs.

    With ``selects`` the caller may name in ``_select`` the members that it wants to see; the tool never gets that.
    ``in_thread`` runs long checks, in at most ``max_steps``.
    """

    tool: str
    inputs: DeclaredInputs
    selects: bool = field(default=False, kw_only=True)
    max_steps: int = field(default=STEPS, kw_only=True)
    in_thread: InThread = field(default=asyncio.to_thread, kw_only=True)

    def __repr__(self) -> str:
        return f"<CoercionStage of {self.tool!r}: {', '.join(self.inputs.each) or 'no inputs'}>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage."""
        arguments, misselected = _select_taken(call) if self.selects else (call.arguments, ())
        try:
            if self.inputs.checker is None:
                values = self.inputs.fitted(arguments)
            else:
                values = await self._checked(arguments)
        except InputsRefused as refused:
            raise _unfit(self.tool, [*refused.faults, *misselected], str(refused)) from None
        if misselected:
            raise _unfit(self.tool, misselected)
        call.arguments = values
        return await forward(call)

    async def _checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self.inputs.weight(arguments) > MOST_VALUES:
            raise too_many()
        with contextlib.suppress(OutOfSteps):
            return self.inputs.fitted(arguments, steps=STEPS_AT_ONCE)
        # Others' calls shall not wait for so much.
        check = partial(self.inputs.fitted, arguments, steps=self.max_steps)
        try:
            values: dict[str, Any] = await self.in_thread(check)
        except OutOfSteps:
            raise too_long(self.max_steps) from None
        return values


@dataclass(eq=False)
class ValidationStage:
    """A PlanStage: arguments that are not what the tool's schema says end the call; all others pass as they are.

    ``strict`` also refuses members that the schema does not declare, see compile_schema. Where no schema is known
    everything passes. ``selects`` as for CoercionStage. ``compilations`` is how many schemas were compiled until now.
    """

    tool: str
    schema_of: SchemaOf
    checks: SchemaChecks
    strict: bool = field(default=True, kw_only=True)
    selects: bool = field(default=False, kw_only=True)
    _latest: SchemaCheck | None = field(default=None, init=False)
    _kept: LastUsed[str, SchemaCheck] = field(default_factory=lambda: LastUsed(SCHEMAS_KEPT), init=False)

    def __post_init__(self) -> None:
        self.compilations = 0

    def __repr__(self) -> str:
        return f"<ValidationStage of {self.tool!r}: {len(self._kept)} schemas>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. A schema that nothing can be checked by ends the call too."""
        schema = await self.schema_of(call)
        arguments, misselected = _select_taken(call) if self.selects else (call.arguments, ())
        try:
            faults: Sequence[Fault] = ()
            if schema is not None:
                faults = await self._check(schema, call.server).faults(
                    arguments, call.client.caller.principal
                )
        except SchemaInvalid as invalid:
            raise StageFailed("validation", f"input validation failed: {invalid}") from None
        except LimitReached as busy:
            sentence = f"input validation failed: {busy}"
            raise StageFailed("validation", sentence, "busy", retry_after=busy.retry_after) from None
        if faults or misselected:
            raise _unfit(self.tool, [*faults, *misselected])
        call.arguments = arguments
        return await forward(call)

    def _check(self, schema: Mapping[str, Any], server: str) -> SchemaCheck:
        """Return the check of a schema, compiled once; most calls come with the very object of the call before."""
        if self._latest is not None and self._latest.schema is schema:
            return self._latest
        digest = _digest(schema)
        check = self._kept.get(digest)
        if check is None:
            check = self.checks.of(schema, server, strict=self.strict)
            self._kept.put(digest, check)
            self.compilations += 1
        check.schema = schema
        self._latest = check
        return check


def _digest(schema: Mapping[str, Any]) -> str:
    # Not of its canonical form, to which names that only look alike are one.
    text = quickly_written(schema)
    return f"{id(schema)}" if text is None else hashlib.sha256(text).hexdigest()


def _select_taken(call: PlannedCall) -> tuple[Mapping[str, Any], Sequence[Fault]]:
    """Return the arguments without ``_select``, whose names are noted in the call; null counts as absent.

    With them is the fault of ``_select``, if it has one.
    """
    if SELECT not in call.arguments:
        return call.arguments, ()
    arguments = {name: value for name, value in call.arguments.items() if name != SELECT}
    names = call.arguments[SELECT]
    if names is None:
        return arguments, ()
    if not isinstance(names, list | tuple):
        return arguments, [wrong_type((SELECT,), names, "array")]
    for position, name in enumerate(names):
        if not isinstance(name, str):
            return arguments, [wrong_type((SELECT, position), name, "string")]
    call.select = tuple(names)
    return arguments, ()


def _unfit(tool: str, faults: Sequence[Fault], sentence: str | None = None) -> StageFailed:
    return StageFailed.worded("validation", refusals.invalid(tool, faults, sentence))
