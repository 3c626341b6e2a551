"""What is recorded of calls, and what never is."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from adapter.pipeline.call import AuthRequest, Context, Forward, PlannedCall
from adapter.pipeline.failures import CallRefused, ErrorStyle, Outcome, StageFailed
from adapter.pipeline.order import Slot
from adapter.pipeline.plan import Step, ToolPlan
from adapter.pipeline.tracing import WalkRecorder
from adapter.rules.access.principals import NOBODY
from adapter.rules.calls.tracing import Tracer, message_facts
from tests.telemetry.recording import Recording

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def recording() -> Recording:
    return Recording()


async def greet(call: PlannedCall) -> Outcome:
    return Outcome({"content": [{"type": "text", "text": f"hello {call.arguments['name']}"}]})


def call_of(execute: Any = greet) -> PlannedCall:
    context = Context.of(AuthRequest.of("users", "greet", NOBODY))
    return PlannedCall("users", "greet", MappingProxyType({"name": "Ada Lovelace"}), execute, context)


def plan_of(tracing: Tracer, stage: Any) -> ToolPlan:
    step = Step(Slot.VALIDATE, "schema", stage)
    return ToolPlan("greet", "script", (step,), ErrorStyle(), observing=WalkRecorder(tracing))


async def through(call: PlannedCall, forward: Forward) -> Outcome:
    return await forward(call)


async def refuse(call: PlannedCall, forward: Forward) -> Outcome:
    raise StageFailed("validation", "name is missing")


async def break_down(call: PlannedCall) -> Outcome:
    raise RuntimeError("cannot reach postgres://app:hunter2@db.internal/shop\nline two")


# --- spans ----------------------------------------------------------------------------------------------------


async def test_spans_and_timings_are_told_the_same(recording: Recording) -> None:
    """Each stage by its name, and what it failed with."""
    told: list[tuple[str, BaseException | None]] = []

    class Timed:
        def __init__(self, name: str) -> None:
            self._name = name

        def end(self, error: BaseException | None) -> None:
            told.append((self._name, error))

    step = Step(Slot.VALIDATE, "schema", through)
    observing = WalkRecorder(recording.tracing, timed=Timed)
    plan = ToolPlan("greet", "script", (step,), ErrorStyle(), observing=observing)
    await plan.walk(call_of())
    with pytest.raises(RuntimeError):
        await plan.walk(call_of(break_down))
    names = ["validate", "execute"]
    assert [name for name, _ in told] == names * 2
    assert [type(error) for _, error in told] == [type(None)] * 3 + [RuntimeError]
    assert set(recording.spans) == {f"stage.{name}" for name in names}


async def test_h34_a_stage_that_goes_on_in_another_task_leaves_no_trace_behind(recording: Recording) -> None:
    """What is behind a stage may be called in a task of its own; spans stay siblings, and end where they began."""

    async def elsewhere(call: PlannedCall, forward: Forward) -> Outcome:
        return await asyncio.create_task(forward(call))  # type: ignore[arg-type]  # what is behind is a coroutine

    step = Step(Slot.MIDDLEWARE, "", elsewhere, "around")
    plan = ToolPlan("greet", "script", (step,), ErrorStyle(), observing=WalkRecorder(recording.tracing))
    with recording.tracing.span("mcp.tool.call", {}) as call:
        await plan.walk(call_of())
        assert recording.tracing.trace_id() is not None
        call.set("after", "the walk")
    assert recording.tracing.trace_id() is None
    root = recording.spans["mcp.tool.call"]
    assert recording.spans["stage.execute"].parent == root.context
    assert recording.spans["stage.middleware"].parent == root.context
    assert dict(root.attributes or {})["after"] == "the walk"


async def test_h34_a_call_whose_time_is_over_says_at_which_stage(recording: Recording) -> None:
    """The call's span has the stage and the reason, and no error: its tool was slow, nothing broke."""
    began = asyncio.Event()

    async def stuck(call: PlannedCall, forward: Forward) -> Outcome:
        began.set()
        await asyncio.Event().wait()
        return await forward(call)

    plan = ToolPlan(
        "greet",
        "script",
        (Step(Slot.MIDDLEWARE, "", stuck),),
        ErrorStyle(),
        observing=WalkRecorder(recording.tracing),
    )
    call = call_of()
    call.time.seconds = 1.0
    with recording.tracing.span("mcp.tool.call", {}):
        walk = asyncio.create_task(plan.walk(call))
        await began.wait()
        plan.overdue(call)
        walk.cancel()
        with pytest.raises(asyncio.CancelledError):
            await walk
    root = recording.spans["mcp.tool.call"]
    assert dict(root.attributes or {}) == {
        "tool.kind": "script",
        "error.stage": "middleware",
        "error.type": "timeout",
    }
    assert root.status.status_code is StatusCode.UNSET
    assert recording.spans["stage.middleware"].status.status_code is StatusCode.UNSET


async def test_v24_a_refusal_leaves_the_status_unset(recording: Recording) -> None:
    """What the caller did wrong is no error of the adapter's."""
    outcome = await plan_of(recording.tracing, refuse).walk(call_of())
    assert outcome.result["isError"] is True
    span = recording.spans["stage.validate"]
    assert span.status.status_code is StatusCode.UNSET
    assert span.events == ()


async def test_v24_an_exception_is_an_error_and_is_recorded(recording: Recording) -> None:
    """What was thrown is in the span by its class and first line, without secrets and without a traceback."""
    with pytest.raises(RuntimeError):
        await plan_of(recording.tracing, through).walk(call_of(break_down))
    span = recording.spans["stage.execute"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "RuntimeError: cannot reach [redacted]"
    assert [(event.name, dict(event.attributes or {})) for event in span.events] == [
        ("exception", {"exception.type": "RuntimeError", "exception.message": "cannot reach [redacted]"})
    ]
    assert "hunter2" not in span.to_json()


def test_v24_a_stage_that_fails_by_an_exception_records_that(recording: Recording) -> None:
    """The fault behind a failure is what is recorded, where whoever makes the telemetry says so."""
    with pytest.raises(StageFailed), recording.tracing.span("stage.execute", {}):
        raise StageFailed("handler", "the handler failed") from KeyError("weather")
    assert recording.spans["stage.execute"].status.description == "KeyError: 'weather'"


@pytest.mark.parametrize("refusal", [CallRefused(-32602, "no such tool"), asyncio.CancelledError()])
def test_v24_refused_and_cancelled_calls_are_no_errors(recording: Recording, refusal: BaseException) -> None:
    """A call that is refused or given up leaves the status as it was."""
    with pytest.raises(type(refusal)), recording.tracing.span("mcp.tool.call", {}):
        raise refusal
    assert recording.spans["mcp.tool.call"].status.status_code is StatusCode.UNSET


def test_v24_a_failure_that_became_a_result_can_be_noted(recording: Recording) -> None:
    """What no longer leaves the block makes the span an error when it is told of it."""
    with recording.tracing.span("mcp.tool.call", {}) as span:
        span.fail(TimeoutError("too late"))
    assert recording.spans["mcp.tool.call"].status.description == "TimeoutError: too late"


def test_an_exception_that_cannot_say_anything_is_recorded_by_its_class(recording: Recording) -> None:
    """An exception of somebody's code may fail when it is asked for its text."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError

    with pytest.raises(MuteError), recording.tracing.span("stage.execute", {}):
        raise MuteError
    description = recording.spans["stage.execute"].status.description
    assert description is not None
    assert description.endswith("MuteError")


# --- redaction ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["password", "http.request.header.authorization", "sentry.dsn"])
def test_h37_values_of_telling_keys_are_hidden(recording: Recording, key: str) -> None:
    """A key that sounds like a secret hides its value whatever that is."""
    with recording.tracing.span("stage.auth", {key: "plain", f"{key}.length": 5}) as span:
        span.set(f"other.{key}", "plain")
    assert set((recording.spans["stage.auth"].attributes or {}).values()) == {"[REDACTED]"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgres://app:hunter2@db/shop", "[redacted]"),
        ("sent Bearer abcdefgh12345678", "sent Bearer [redacted]"),
        ("https://ada:hunter2@example.org/x", "https://[redacted]@example.org/x"),
        ("Server=db; password=hunter2", "Server=db; password=[redacted]"),
        ("get-user", "get-user"),
    ],
)
def test_h37_secrets_in_values_are_hidden(recording: Recording, value: str, shown: str) -> None:
    """A value that looks like a secret is not recorded under any key."""
    with recording.tracing.span("stage.auth", {"first": value}) as span:
        span.set("second", value)
        span.set("cache.hit", True)
    recorded = {"first": shown, "second": shown, "cache.hit": True}
    assert dict(recording.spans["stage.auth"].attributes or {}) == recorded


# --- traces across borders ------------------------------------------------------------------------------------


def test_the_client_s_trace_goes_on(recording: Recording) -> None:
    """A call whose client names its trace is a part of that trace, and so is what happens in it."""
    tracing = recording.tracing
    with tracing.server_span("mcp.tool.call", {}, TRACEPARENT):
        assert tracing.trace_id() == TRACE
        with tracing.span("stage.auth", {}):
            pass
    call, auth = recording.spans["mcp.tool.call"], recording.spans["stage.auth"]
    assert call.kind is SpanKind.SERVER
    assert call.parent is not None
    assert f"{call.parent.span_id:016x}" == PARENT
    assert auth.parent == call.context
    assert tracing.trace_id() is None


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        "nonsense",
        5,
        f"00-{'0' * 32}-{PARENT}-01",
        f"ff-{TRACE}-{PARENT}-01",
        TRACEPARENT + "-" + "x" * 600,
    ],
)
def test_a_malformed_trace_counts_as_none(
    recording: Recording, traceparent: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A call with an unusable trace begins its own, and fills no log."""
    with recording.tracing.server_span("mcp.tool.call", {}, traceparent):
        assert recording.tracing.trace_id() not in (None, TRACE)
    assert recording.spans["mcp.tool.call"].parent is None
    assert caplog.records == []


async def test_tasks_and_threads_are_in_the_span_they_began_in(recording: Recording) -> None:
    """The current span is known in tasks and worker threads, and those beside it know nothing of it."""
    tracing = recording.tracing
    with tracing.span("mcp.tool.call", {}):
        own = tracing.trace_id()
        task = asyncio.create_task(asyncio.to_thread(tracing.trace_id))
    assert tracing.trace_id() is None
    assert await task == own


@pytest.mark.parametrize(
    ("sampler", "recorded"),
    [
        ("parentbased_always_on", [True, True, False]),
        ("parentbased_always_off", [False, True, False]),
        ("always_on", [True, True, True]),
        ("always_off", [False, False, False]),
    ],
)
def test_the_sampler_decides(sampler: str, recorded: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """About a new trace, one that a client records, and one that it does not record, and all that is within."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    recording = Recording()
    tracing, found = recording.tracing, []
    for number, traceparent in enumerate((None, TRACEPARENT, TRACEPARENT[:-1] + "0")):
        with tracing.server_span(f"server {number}", {}, traceparent, request_id="a" * 100):
            found.append(tracing.recorded_trace() is not None)
            with tracing.span(f"stage {number}", {}):
                assert (tracing.recorded_trace() is not None) is found[-1]
            client = tracing.client_span(f"client {number}", {}, 1)
            assert (client is not None) is found[-1]
            if client is not None:
                client.end()
        assert tracing.recorded_trace() is None
    assert found == recorded
    assert len(recording.spans) == 3 * recorded.count(True)
    told = [(span.attributes or {}).get("jsonrpc.request.id") for span in recording.spans.values()]
    assert [told.count("a" * 64), told.count("1")] == [recorded.count(True)] * 2


def test_the_first_error_of_a_request_counts(recording: Recording) -> None:
    """A kind that a stage has noted stays; a code of JSON-RPC has an attribute of its own, a word has none."""
    tracing = recording.tracing
    tracing.server_span("stopped", {}).end()
    refused, slow = tracing.server_span("refused", {}), tracing.server_span("slow", {})
    tracing.current().set("error.type", "timeout")
    slow.end("-32000", "upstream_timeout")
    refused.end("-32602", "bad_params")
    told = {name: dict(span.attributes or {}) for name, span in recording.spans.items()}
    assert told == {
        "stopped": {},
        "refused": {"error.type": "-32602", "rpc.response.status_code": "-32602"},
        "slow": {"error.type": "timeout"},
    }
    assert recording.spans["stopped"].status.status_code is StatusCode.UNSET
    assert recording.spans["refused"].status.description == "bad_params"


def test_half_a_character_spoils_no_batch(recording: Recording) -> None:
    """UTF-8 has none, and names come from clients."""
    name, attributes = message_facts("tools/call", "\ud800", None)
    recording.tracing.server_span(name, {**attributes, "other": "\ud800"}, request_id="\ud800").end()
    (span,) = recording.spans.values()
    span.to_json().encode()


def test_a_name_of_a_client_tells_no_secret() -> None:
    """And is short, so that those that are kept fill no memory."""
    name, attributes = message_facts("tools/call", "postgres://me:hunter2@db/" + "x" * 104, "v" * 129)
    assert "hunter2" not in name
    assert max(map(len, map(str, attributes.values()))) == 128
