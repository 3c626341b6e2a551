"""The user's code around a tool: mappers, and the context factory."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from adapter.pipeline.call import Signal
from adapter.pipeline.code_stages import CodeFailures, ContextStage, InputMapperStage, OutputMapperStage
from adapter.pipeline.failures import Outcome
from adapter.rules.results.outcomes import ToolUserError, error, response, tool_error
from adapter.rules.results.refusals import Expose
from adapter.rules.text.json_values import NotJson
from tests.pipeline.walking import LOG, Behind, Scripted, Written, a_call, raising, refused


def mapping_in(code: Scripted, expose: Expose = "message") -> InputMapperStage:
    return InputMapperStage(code, CodeFailures("input_transform", "get-user", expose, LOG))


def mapping_out(code: Scripted, *, rows: bool = False, whole: bool = False) -> OutputMapperStage:
    failures = CodeFailures("output_transform", "get-user", "message", LOG)
    return OutputMapperStage(code, failures, rows=rows, whole=whole)


# --- of the arguments -------------------------------------------------------------------------------------------


async def test_h4_a_mapper_knows_the_calls_context() -> None:
    """As every piece of the user's code does."""
    behind = Behind()
    code = Scripted(lambda _, context: {"by": context.request.tool})
    await mapping_in(code)(a_call(), behind)
    assert behind.arguments == [{"by": "get-user"}]


async def test_h4_what_a_mapper_does_to_its_payload_changes_no_call() -> None:
    """What was sent is still what was sent, for all who look at it later."""

    def spoil(payload: Any, _: Any) -> Any:
        payload["inputs"]["deep"]["x"] = 2
        return {}

    sent = {"x": 1}
    await mapping_in(Scripted(spoil))(a_call(deep=sent), Behind())
    assert sent == {"x": 1}


async def test_h4_what_a_mapper_returns_is_made_json() -> None:
    """Later stages, and upstreams, know nothing else."""
    behind = Behind()
    await mapping_in(Scripted(lambda *_: {"price": Decimal("1.5"), 7: ("a",)}))(a_call(), behind)
    assert behind.arguments == [{"price": "1.5", "7": ["a"]}]


@pytest.mark.parametrize("returned", [None, [1], "text", 7])
async def test_w7_what_is_no_object_ends_the_call(returned: object) -> None:
    """Never silently: the original inputs do not go on."""
    behind = Behind()
    failed = await refused(mapping_in(Scripted(lambda *_: returned)), a_call(id=1), behind)
    assert failed.stage == "input_transform"
    assert str(failed) == (
        "input transform failed for tool get-user: "
        f"the mapper must return an object, not {type(returned).__name__}"
    )
    assert not behind.reached


async def test_a_sentence_for_the_caller_stands_verbatim_and_alone() -> None:
    """Also where exceptions are not told."""
    code = Scripted(raising(ToolUserError("No such user: /etc/x")))
    assert str(await refused(mapping_in(code, "safe"), a_call(), Behind())) == "No such user: /etc/x"


async def test_safe_tells_the_trace_and_nothing_else() -> None:
    """The general sentence."""
    code, call = Scripted(raising(ValueError("secret"))), a_call()
    assert str(await refused(mapping_in(code, "safe"), call, Behind())) == "The call failed."
    call.context["trace_id"] = "t1"
    assert str(await refused(mapping_in(code, "safe"), call, Behind())) == "The call failed. Trace: t1"


@pytest.mark.parametrize(
    ("expose", "raised", "why"),
    [
        ("message", TimeoutError("timed out after 5 s"), "timed out after 5 s"),
        ("message", TimeoutError(), "timed out"),
        ("safe", TimeoutError("db at 10.0.0.1"), "timed out"),
    ],
)
async def test_a_mapper_that_is_given_up_is_a_timeout(expose: Expose, raised: TimeoutError, why: str) -> None:
    """Programs read it in the reason."""
    failed = await refused(mapping_in(Scripted(raising(raised)), expose), a_call(), Behind())
    assert (failed.reason, str(failed)) == ("timeout", f"input transform failed for tool get-user: {why}")


# --- of the result ----------------------------------------------------------------------------------------------


async def test_h7_a_mapper_of_a_proxied_tool_sees_the_whole_result_too() -> None:
    """And the object that it returns is structuredContent as well, instead of what was."""
    came = {
        "content": [{"type": "text", "text": "two"}],
        "structuredContent": {"n": 2},
        "isError": False,
        "_meta": {"k": 1},
    }
    code = Scripted(lambda payload, _: {"twice": payload["results"]["n"] * 2})
    outcome = await mapping_out(code, whole=True)(a_call(), Behind(Outcome(came)))
    assert code.payloads == [{"results": {"n": 2}, "result": came, "tool": "get-user"}]
    assert outcome.result == {
        "content": [{"type": "text", "text": '{"twice":4}'}],
        "structuredContent": {"twice": 4},
        "isError": False,
        "_meta": {"k": 1},
    }


async def test_h7_what_a_mapper_does_to_its_payload_changes_no_result() -> None:
    """A result may be somebody else's too."""
    came = {"content": [], "structuredContent": {"rows": [1]}}

    def spoil(payload: Any, _: Any) -> Any:
        payload["results"]["rows"].clear()
        payload["result"]["content"].append("x")

    await mapping_out(Scripted(spoil), whole=True)(a_call(), Behind(Outcome(came)))
    assert came == {"content": [], "structuredContent": {"rows": [1]}}


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.of(error("no")),
        Outcome({"content": []}, final=True),
        Outcome({"task": {"taskId": "t"}}),
        Outcome({"resultType": "input_required", "inputRequests": []}),
    ],
)
async def test_h7_what_is_not_the_tools_own_result_passes_unchanged(outcome: Outcome) -> None:
    """A failure, an answer in the tool's stead, a task, a question: no mapper hears of it."""
    code = Scripted(lambda *_: "mapped")
    assert await mapping_out(code)(a_call(), Behind(outcome)) is outcome
    assert code.payloads == []


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, "[]"),
        ({"a": 1}, '[{"a":1}]'),
        ([1, {"b": 2}], '[{"value":1},{"b":2}]'),
        ("x", '[{"value":"x"}]'),
    ],
)
async def test_w7_rows_only_where_they_are_asked_for(returned: object, text: str) -> None:
    """H31's shapes; elsewhere the value is as it is."""
    code = Scripted(lambda *_: returned)
    outcome = await mapping_out(code, rows=True)(a_call(), Behind())
    assert outcome.result["content"] == [{"type": "text", "text": text}]
    plain = await mapping_out(code)(a_call(), Behind())
    assert plain.data == returned


async def test_h7_a_mapper_may_return_what_a_handler_may() -> None:
    """A result of several blocks, or a failure."""
    said = await mapping_out(Scripted(lambda *_: response("hi").llm_hint("h")), rows=True)(a_call(), Behind())
    assert said.result["content"][0] == {"type": "text", "text": "hi"}
    assert len(said.result["content"]) == 2
    failed = await mapping_out(Scripted(lambda *_: tool_error("NOT_FOUND")))(a_call(), Behind())
    assert failed.is_error
    assert not failed.shapable


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (RuntimeError("boom"), "boom"),
        (Exception("boom"), "boom"),
        (ValueError(), "ValueError"),
        (type("<script>", (Exception,), {})("boom"), "boom"),
        (NotJson("Opaque cannot be written as JSON."), "Opaque cannot be written as JSON."),
        (ZeroDivisionError("division by zero"), "division by zero (ZeroDivisionError)"),
    ],
)
async def test_w9_an_exceptions_class_is_told_where_it_says_something(raised: Exception, why: str) -> None:
    """Behind what it says; neither a sentence of the adapter's own nor a name that is none has one."""
    failed = await refused(mapping_in(Scripted(raising(raised))), a_call(), Behind())
    assert str(failed) == f"input transform failed for tool get-user: {why}"


async def test_h7_what_no_json_can_say_is_a_failure_of_the_mapper() -> None:
    """A list that holds itself."""
    endless: list[Any] = []
    endless.append(endless)
    failed = await refused(mapping_out(Scripted(lambda *_: endless)), a_call(), Behind())
    assert str(failed) == (
        "output transform failed for tool get-user: The value has more than 250000 values, or contains itself."
    )


# --- what a context factory adds to a call, and what it cannot -------------------------------------------------


def gathering(function: Callable[..., Any]) -> ContextStage:
    return ContextStage(Written(function), CodeFailures("context", "get-user", "message", LOG))


async def test_v3_what_is_the_adapters_to_say_stays() -> None:
    """Neither the request, the signal and the deadline, nor what means something to other languages' objects."""
    behind, call = Behind(), a_call()
    before = call.context
    members = {
        "request": 1,
        "signal": 2,
        "deadline": 3,
        "__proto__": 4,
        "constructor": 5,
        6: 7,
        "user": "ada",
    }
    await gathering(lambda request: members)(call, behind)
    (context,) = behind.contexts
    assert context == {**before, "user": "ada"}
    assert isinstance(context.signal, Signal)
    assert context.given_up is before.given_up
    assert "user" not in before


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raising(ValueError("no database at db.internal")), "context unavailable"),
        (raising(TimeoutError("db.internal did not answer")), "context unavailable"),
        (lambda request: None, "context unavailable"),
        (raising(ToolUserError("Come back tomorrow.")), "Come back tomorrow."),
    ],
)
async def test_v3_without_a_context_there_is_no_call(function: Callable[..., Any], said: str) -> None:
    """The design's sentence, at the stage ``context``; why it is so is for the log, unless it was said for callers."""
    behind = Behind()
    failed = await refused(gathering(function), a_call(), behind)
    assert (failed.stage, str(failed)) == ("context", said)
    assert not behind.reached
