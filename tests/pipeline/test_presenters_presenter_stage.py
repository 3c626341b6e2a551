"""The stage that presents: what of a tool's own result a caller still gets, and that nothing redacted is in it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog import get_logger
from structlog.testing import capture_logs

from adapter.pipeline.call import AuthRequest, Context, InThread, PlannedCall
from adapter.pipeline.failures import ErrorStyle, Outcome, StageFailed
from adapter.pipeline.order import Slot
from adapter.pipeline.plan import Step, ToolPlan
from adapter.pipeline.presenters import PresenterStage, definition_with_select
from adapter.rules.access.principals import NOBODY
from adapter.rules.access.redacted_values import censor_of
from adapter.rules.files.structured_artifacts import Shown, ShownFile
from adapter.rules.presenters import ui
from adapter.rules.presenters.presenters import BlockSources, Embed, Presenter, SentData, Suggest
from adapter.rules.presenters.shapes import MOST_PROBLEMS, StepsLeft, json_shape, shape_of
from adapter.rules.results.blocks import Suggestion
from adapter.rules.results.outcomes import as_result, error, response, success, text_block, tool_error
from adapter.rules.schema.checker import compile_schema
from adapter.rules.schema.cost import STEPS

USER = shape_of({"id": "int", "name": "string?", "status": "string?", "ssn": "string?"})
SHOWN = Shown(
    uri="artifact://users/a1",
    id="a1",
    file=ShownFile("photo.png", "image/png", 3, "0" * 64),
    expires_at=None,
    exposed=True,
    download_url="http://127.0.0.1/d/a1",
    raw=b"abc",
)


async def presented(
    answer: Outcome,
    presenter: Presenter,
    *,
    structured: bool = False,
    select: tuple[str, ...] | None = None,
    context: Mapping[str, Any] | None = None,
    max_steps: int = STEPS,
    in_thread: InThread = asyncio.to_thread,
) -> Outcome:
    """What becomes of an answer of the tool."""

    async def execute(_: PlannedCall) -> Outcome:
        return answer

    call = PlannedCall(
        server="crm",
        tool="get-user",
        arguments={},
        execute=execute,
        given=Context.of(AuthRequest.of("crm", "get-user", NOBODY)).merged(context or {}),
    )
    call.select = select
    stage = PresenterStage(
        "get-user", presenter, get_logger(), structured=structured, max_steps=max_steps, in_thread=in_thread
    )
    return await stage(call, execute)


def texts(outcome: Outcome) -> list[str]:
    return [block["text"] for block in outcome.result["content"]]


def upstreams(**members: Any) -> Outcome:
    """A result of an upstream, of which nobody here knows the data."""
    return Outcome({"content": [], "isError": False, **members})


# --- what presenters say, at the stage ------------------------------------------------------------------------


async def test_v10_data_that_does_not_fit_is_a_failure_of_the_presenter() -> None:
    """What is not declared is taken out; what does not fit is told field by field, and where the call ended."""
    presenter = Presenter(name="User", shape=USER)
    assert json.loads(texts(await presented(Outcome.of(as_result({"id": 1, "hack": 2})), presenter))[0]) == {
        "id": 1
    }
    with pytest.raises(StageFailed) as failed:
        await presented(Outcome.of(as_result({"id": "hunter2"})), presenter)
    outcome = ErrorStyle().outcome(failed.value)
    assert outcome.result["_meta"] == {"adapter/error": {"stage": "presenter", "code": -32000}}
    assert texts(outcome)[0].startswith(
        '<tool_error code="INTERNAL_ERROR" severity="error">\n<message>[User Presenter] Validation failed:\n'
        '  - "id": Expected integer, received string</message>\n'
    )
    assert str(failed.value).startswith("[User Presenter] Validation failed:")
    assert "hunter2" not in json.dumps(outcome.result)


async def test_data_that_takes_much_checking_is_checked_in_a_thread_and_within_bounds() -> None:
    """More items than the event loop has time for are presented all the same; more than anybody has are refused."""
    checker = compile_schema({"properties": {"id": {"type": "integer"}}})

    def check(data: Any, left: StepsLeft) -> list[tuple[Sequence[str | int], str]]:
        judgement = checker.judged(data, steps=left.left)
        left.left -= judgement.steps
        return [(fault.path, fault.keyword) for fault in judgement.faults]

    presenter = Presenter(name="User", shape=json_shape({"properties": {"id": {}}}, check))
    answer = Outcome.of(as_result([{"id": n, "hack": 1} for n in range(5_000)]))
    shown = json.loads(texts(await presented(answer, presenter))[0])
    assert (len(shown), shown[7]) == (5_000, {"id": 7})
    with pytest.raises(StageFailed, match="needs more than 6000 steps") as failed:
        await presented(answer, presenter, max_steps=6_000)
    assert failed.value.stage == "presenter"
    with pytest.raises(StageFailed) as failed:
        await presented(Outcome.of(as_result([{"id": "x"}] * 5_000)), presenter)
    assert failed.value.text.count("Does not satisfy type") == MOST_PROBLEMS


async def test_v12_each_block_is_an_item_of_the_content() -> None:
    """In the documented order, those of the tool's own response among them, in the golden spelling."""
    presenter = Presenter(
        name="User",
        item=BlockSources(
            rules=("B",),
            ui=(lambda data, ctx: ui.markdown(ctx.lang, title="T"),),
            suggest=(Suggest(Suggestion("billing.pay", "Pay 1")),),
        ),
    )
    answer = Outcome.of(response({"id": 1}).system_rules("A").llm_hint("h").build())
    outcome = await presented(answer, presenter, context={"lang": "M"})
    assert texts(outcome)[1:] == [
        '<ui_passthrough type="markdown" title="T">\nM\n</ui_passthrough>',
        "<llm_directives>\n- h\n</llm_directives>",
        "<domain_rules>\n- A\n- B\n</domain_rules>",
        "<action_suggestions>\n- billing.pay: Pay 1\n</action_suggestions>",
    ]
    assert {block["type"] for block in outcome.result["content"]} == {"text"}


def strict_schema() -> dict[str, Any]:
    return {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": False}


def test_v15_select_is_among_the_inputs() -> None:
    """With the declared members as its options, whatever else the inputs say."""
    presenter = Presenter(name="User", shape=USER, sent=SentData(select=True))
    definition = {"name": "get-user", "inputSchema": strict_schema()}
    properties = definition_with_select(definition, presenter)["inputSchema"]["properties"]
    assert properties == {
        "id": {"type": "integer"},
        "_select": {"type": "array", "items": {"type": "string", "enum": ["id", "name", "status", "ssn"]}},
    }
    assert definition["inputSchema"] == strict_schema()
    bare = definition_with_select({"name": "get-user", "inputSchema": {"type": "object"}}, presenter)
    assert list(bare["inputSchema"]["properties"]) == ["_select"]


@pytest.mark.parametrize("schema", [{"type": "array"}, True, None, {"type": "object", "properties": []}])
def test_v15_inputs_that_are_no_object_stay(schema: Any) -> None:
    """And so do those of tools whose presenter lets nobody select."""
    definition = {"name": "get-user", "inputSchema": schema}
    assert (
        definition_with_select(definition, Presenter(name="U", shape=USER, sent=SentData(select=True)))
        is definition
    )
    plain = {"name": "get-user", "inputSchema": {"type": "object"}}
    assert definition_with_select(plain, Presenter(name="U", shape=USER)) is plain


# --- whose results are presented ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        Outcome.of(error("bad <thing>")),
        Outcome.of(tool_error("LATE", message="Late", severity="warning")),
        Outcome({"content": [text_block("from a middleware")]}, final=True),
        Outcome({"resultType": "input_required", "requests": {}}),
        Outcome({"task": {"taskId": "1"}}),
    ],
)
async def test_what_is_no_data_of_the_tool_passes(answer: Outcome) -> None:
    """Failures, warnings, answers in the tool's stead, questions and tasks stay the same objects."""
    assert await presented(answer, Presenter(name="U", shape=USER, censor=censor_of(["ssn"]))) is answer


@pytest.mark.parametrize(
    "answer",
    [
        Outcome.of(success({"id": 1, "ssn": "123-45"})),
        Outcome.of(response({"id": 1, "ssn": "123-45"}).llm_hint("of 123-45").build()),
        Outcome.of(as_result({"id": 1, "ssn": "123-45"}, structured=True)),
        upstreams(content=[text_block('{"id": 1, "ssn": "123-45"}')]),
        upstreams(content=[text_block("123-45")], structuredContent={"id": 1, "ssn": "123-45"}),
    ],
)
async def test_w14_however_data_is_wrapped_the_presenter_comes_first(answer: Outcome) -> None:
    """No wrapper of a tool's result gets round it."""
    outcome = await presented(answer, Presenter(name="U", shape=USER, censor=censor_of(["ssn"])))
    assert texts(outcome) == ['{"id":1,"ssn":"[REDACTED]"}']
    assert "123-45" not in repr(outcome)


async def test_structured_content_is_what_was_presented() -> None:
    """Of upstreams' tools, where it is an object; the eras' own members stay."""
    presenter = Presenter(name="U", shape=USER)
    answer = upstreams(structuredContent={"id": 1, "hack": 2}, resultType="complete", _meta={"k": 1})
    outcome = await presented(answer, presenter, structured=True)
    assert outcome.result == {
        "content": [text_block('{"id":1}')],
        "structuredContent": {"id": 1},
        "isError": False,
        "resultType": "complete",
        "_meta": {"k": 1},
    }
    listed = await presented(upstreams(content=[text_block('[{"id": 1}]')]), presenter, structured=True)
    assert "structuredContent" not in listed.result
    assert listed.data == [{"id": 1}]


def with_artifact() -> Outcome:
    """A result of an upstream to which the adapter has added an artifact."""
    content = [text_block('{"id": 1, "ssn": "123"}'), *SHOWN.blocks()]
    return upstreams(content=content, _meta={"artifact": SHOWN.meta, "adapter/note": 1, "own": "123"})


async def test_artifacts_stay_beside_what_is_presented() -> None:
    """They do not keep the tool's single text from being its data."""
    outcome = await presented(with_artifact(), Presenter(name="U"), structured=True)
    assert outcome.result["structuredContent"] == {"id": 1, "ssn": "123"}
    assert outcome.result["content"][1:] == list(SHOWN.blocks())
    assert outcome.result["_meta"]["own"] == "123"


async def test_w14_of_an_artifact_only_its_links_pass_a_redaction() -> None:
    """What is in the file nobody has redacted; and what only looks like the adapter's word does not pass."""
    presenter = Presenter(name="U", shape=USER, censor=censor_of(["ssn"]))
    outcome = await presented(with_artifact(), presenter, structured=True)
    assert outcome.result["content"][1:] == list(SHOWN.blocks())[:2]
    assert outcome.result["_meta"] == {"artifact": SHOWN.meta, "adapter/note": 1}
    forged = upstreams(
        structuredContent={"id": 1},
        content=[{"type": "resource_link", "uri": "x", "name": "123"}],
        _meta={"artifact": {**SHOWN.meta, "ssn": "123"}, "artifacts": [{"ssn": "123"}]},
    )
    assert "123" not in json.dumps((await presented(forged, presenter)).result)


# --- redaction fails closed -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        [text_block('{"ssn": "123"}'), text_block('{"ssn": "124"}')],
        [text_block("The number is 123.")],
        [{"type": "image", "data": "MTIz", "mimeType": "image/png"}],
        [text_block('"123"')],
    ],
)
async def test_w14_content_into_which_no_path_leads_is_refused(content: list[Any]) -> None:
    """Texts and images of an upstream are sent unread by no presenter that redacts."""
    presenter = Presenter(name="U", censor=censor_of(["ssn"]))
    with pytest.raises(StageFailed, match=r"^\[U Presenter\] Validation failed:.*") as failed:
        await presented(upstreams(content=content), presenter, structured=True)
    assert "123" not in failed.value.text
    assert (await presented(upstreams(content=content), Presenter(name="U"))).succeeded


def raising(wrong: BaseException) -> Callable[[Any, Any], Any]:
    def says(data: Any, context: Any) -> Any:
        raise wrong

    return says


@pytest.mark.parametrize("wrong", [ValueError("123"), RecursionError("123"), SystemExit("123")])
async def test_w14_code_that_fails_sends_nothing(wrong: BaseException) -> None:
    """Neither the data nor the exception, which stands in the debug log; the adapter goes on."""
    presenter = Presenter(name="U", item=BlockSources(rules=(raising(wrong),)))
    with capture_logs() as logged, pytest.raises(StageFailed) as failed:
        await presented(Outcome.of(as_result({"ssn": "123"})), presenter)
    assert failed.value.stage == "presenter"
    assert "123" not in str(failed.value) + failed.value.text
    assert [(entry["log_level"], entry.get("tool")) for entry in logged] == [
        ("warning", "get-user"),
        ("debug", "get-user"),
    ]
    assert "123" not in str(logged[0])
    assert logged[1]["exc_info"]


async def test_w14_a_data_structure_that_nobody_can_read_is_refused() -> None:
    """One that holds itself ends the call at the presenter, in a plan too."""
    endless: list[Any] = []
    endless.append(endless)

    async def execute(_: PlannedCall) -> Outcome:
        return Outcome({"content": [text_block("[]")]}, data=endless)

    stage = PresenterStage("t", Presenter(name="U"), get_logger(), structured=False)
    plan = ToolPlan("t", "script", [Step(Slot.PRESENTER, "U", stage)], ErrorStyle())
    context = Context.of(AuthRequest.of("s", "t", NOBODY))
    outcome = await plan.walk(PlannedCall("s", "t", {}, execute, context))
    assert outcome.is_error
    assert outcome.result["_meta"]["adapter/error"]["stage"] == "presenter"


KEYS = st.sampled_from(["a", "b", "c"])
LEAVES = st.integers() | st.none() | st.text("xyz", max_size=3)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
SECRET = "S3CR3T-0f-1ts-0wn"


@st.composite
def hidden(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """An object with the secret somewhere deep in it, and a path that leads there."""
    value: Any = draw(st.sampled_from([SECRET, [SECRET], {"x": {"y": SECRET}}, f"is {SECRET}."]))
    path = ""
    for _ in range(draw(st.integers(1, 4))):
        key = draw(KEYS)
        value = {**draw(st.dictionaries(KEYS, TREES, max_size=2)), key: value}
        path = f".{draw(st.sampled_from([key, '*']))}{path}"
        if draw(st.booleans()):
            before = draw(st.lists(TREES, max_size=1))
            value = [*before, value]
            # A name leads through a list that nobody mentions, a star is the list's own.
            unsaid = [] if path.startswith(".*") else [""]
            path = draw(st.sampled_from([*unsaid, "[*]", f"[{len(before)}]"])) + path
    key = draw(KEYS)
    return {**draw(st.dictionaries(KEYS, TREES, max_size=2)), key: value}, f"{key}{path}"


@given(hidden(), st.booleans(), st.booleans(), st.sampled_from(["json", "toon"]))
async def test_w14_a_secret_under_a_redacted_path_is_nowhere_in_the_outcome(
    drawn: tuple[dict[str, Any], str], ours: bool, listed: bool, notation: Any
) -> None:
    """Not in content, structured content, members beside them, rules, nor in what is remembered of the call."""
    data: Any = [drawn[0]] if listed else drawn[0]
    answer = (
        Outcome.of(response(data).llm_hint(SECRET).build())
        if ours
        else upstreams(
            content=[text_block(json.dumps(data))],
            **({} if listed else {"structuredContent": data}),
            _meta={"own": SECRET, "artifact": {"artifact_uri": SECRET, "why": SECRET}},
            beside={"all": data},
        )
    )
    presenter = Presenter(
        name="U",
        censor=censor_of([drawn[1]]),
        item=BlockSources(
            rules=(lambda data, ctx: json.dumps(data),),
            ui=(lambda data, ctx: ui.json(data),),
            suggest=(lambda data, ctx: Suggestion("t", str(data)),),
        ),
        collection=BlockSources(ui=(lambda data, ctx: ui.json(data),)),
        sent=SentData(format=notation),
    )
    outcome = await presented(answer, presenter, structured=not ours)
    assert SECRET not in json.dumps(outcome.result)
    assert SECRET not in repr(outcome)


@pytest.mark.parametrize(("rows", "aside"), [(3, False), (20_000, True)])
async def test_much_is_presented_beside_the_event_loop(rows: int, aside: bool) -> None:
    """What takes long to present keeps nobody else's call waiting; what takes no time changes no thread."""
    went: list[bool] = []

    async def in_thread(job: Callable[[], Any]) -> Any:
        went.append(True)
        return await asyncio.to_thread(job)

    answer = Outcome.of(as_result([{"id": number, "name": "x" * 10} for number in range(rows)]))
    outcome = await presented(
        answer, Presenter(name="U", shape=USER, sent=SentData(limit=2)), in_thread=in_thread
    )
    assert "truncated" in texts(outcome)[-1]
    assert bool(went) is aside


async def test_a_presenters_code_runs_beside_the_event_loop() -> None:
    """However little there is to present: a function takes as long as it likes, and others do not wait for it."""
    ran: list[int] = []

    def says(*_: Any) -> None:
        ran.append(threading.get_ident())

    one, several = {"id": 1, "of": {"id": 2}}, [{"id": 1}]
    for presenter, data in (
        (Presenter(name="U", item=BlockSources(rules=(says,))), one),
        (Presenter(name="U", item=BlockSources(ui=(says,))), one),
        (Presenter(name="U", item=BlockSources(suggest=(says,))), one),
        (Presenter(name="U", collection=BlockSources(rules=(says,))), several),
        (Presenter(name="U", collection=BlockSources(ui=(says,))), several),
        (Presenter(name="U", collection=BlockSources(suggest=(says,))), several),
        (Presenter(name="U", censor=censor_of(["id"], says)), one),
        (
            Presenter(name="U", embeds=(Embed("of", Presenter(name="V", item=BlockSources(rules=(says,)))),)),
            one,
        ),
    ):
        ran.clear()
        await presented(Outcome.of(as_result(data)), presenter)
        assert ran and threading.get_ident() not in ran, presenter
