"""The table of errors, row by row, in both modes; and that no answer tells how the code behind it is made."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.pipeline.end_to_end.living import ERAS, Living, living

SETTINGS = """
connectors:
  - {name: main, connector: sqlite, connection_string: ":memory:"}
presenters:
  strict: {schema: {id: int}}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    tools:
      define:
        - {name: locked, handler: "work.py#handler", auth: {plugin: api_key, policy: {value: k3y}}}
        - {name: mapped, handler: "work.py#handler", mappers: {input: "work.py#broken"}}
        - {name: typed, handler: "work.py#handler", inputs: {n: {type: int}}}
        - {name: placed, use: main, statement: "SELECT {{ env.ADAPTER_TEST_NOWHERE }} AS place"}
        - {name: absent, use: main, statement: SELECT secret FROM nowhere}
        - {name: broken, handler: "work.py#broken"}
        - {name: formed, handler: "work.py#handler", mappers: {output: "work.py#broken"}}
        - {name: shown, handler: "work.py#handler", presenter: strict}
        - {name: guarded, handler: "work.py#handler", middleware: ["work.py#denied"]}
        - {name: user, handler: "work.py#user"}
"""

WORK = """
from adapter.api import ToolUserError


def handler(payload):
    return {"id": "none"}


def broken(payload):
    return deeper()


def deeper():
    raise RuntimeError("no way to postgres://me:hunter2@db/x\\nin the second line")


async def denied(ctx, args, next):
    raise LookupError("not you")


def user(payload):
    raise ToolUserError("Pick another day.")
"""

WHY = "no way to [redacted]"
TABLE = {
    "locked": ("auth", "unauthorized: invalid api key"),
    "mapped": ("input_transform", f"input transform failed for tool mapped: {WHY}"),
    "typed": (
        "validation",
        "input validation failed: validation error for field 'n': required input 'n' is missing",
    ),
    "placed": (
        "environment",
        "tool 'placed': failed to substitute environment variables in statement: environment variable "
        "'ADAPTER_TEST_NOWHERE' not found (required at server startup)",
    ),
    "absent": ("connector", "tool execution failed: failed to execute query: no such table: nowhere"),
    "broken": ("handler", f"handler script failed for tool broken: {WHY}"),
    "formed": ("output_transform", f"output transform failed for tool formed: {WHY}"),
    "shown": (
        "presenter",
        '[strict Presenter] Validation failed:\n  - "id": Expected integer, received string',
    ),
    "guarded": ("middleware", "middleware failed for tool guarded: not you (LookupError)"),
    "user": ("handler", "Pick another day."),
}
"""Of each tool the stage that fails, and the plain sentence."""

WORDED = {
    "typed": '<validation_error action="typed">\n<field name="n">Required You sent: (missing). Expected type: '
    "integer.</field>\n<recovery>Fix the fields above and call the tool again. Do not explain the error."
    "</recovery>\n</validation_error>",
    "shown": '<tool_error code="INTERNAL_ERROR" severity="error">\n<message>[strict Presenter] Validation failed:\n'
    '  - "id": Expected integer, received string</message>\n<recovery>The tool itself is at fault: the same call '
    "will fail again. Report this to the user.</recovery>\n</tool_error>",
}
"""What stands in the place of the sentence where a failure has a form of its own."""

TRACES = (b"Traceback", b".py", b"hunter2", b"deeper", b"second line", b"RuntimeError")


def erring(
    place: Path, mode: str = "result", settings: str = SETTINGS, said: dict[str, str] | None = None
) -> AbstractAsyncContextManager[Living]:
    return living(place, settings, scripts={"work": WORK}, said={"core.errors.mode": mode, **(said or {})})


@pytest.mark.parametrize("version", ERAS)
async def test_h9_mode_jsonrpc_answers_the_table_of_codes(tmp_path: Path, version: str) -> None:
    """Every stage fails with -32000 and its sentence as a JSON-RPC error; an unknown tool is -32601."""
    async with erring(tmp_path, "jsonrpc") as front:
        for tool, (stage, sentence) in TABLE.items():
            answer = await front.call(tool, {}, version=version)
            assert (answer.error["code"], answer.error["message"]) == (-32000, sentence), tool
            assert answer.error["data"] == {"stage": stage, "code": -32000}
            assert not [trace for trace in TRACES if trace in answer.body], answer.body
        unknown = await front.call("nothing", {}, version=version)
        assert (unknown.error["code"], unknown.error["message"]) == (-32601, "Unknown tool: nothing")


@pytest.mark.parametrize("version", ERAS)
async def test_h9_mode_result_answers_results(tmp_path: Path, version: str) -> None:
    """The same failures are results that are errors, with stage and code for programs; a tool that is not there is
    a JSON-RPC error in this mode too."""
    async with erring(tmp_path) as front:
        for tool, (stage, sentence) in TABLE.items():
            answer = await front.call(tool, {}, version=version)
            assert answer.failure == {"stage": stage, "code": -32000}, tool
            assert answer.text == WORDED.get(tool, sentence)
            assert not [trace for trace in TRACES if trace in answer.body], answer.body
            assert answer.result.get("resultType") == ("complete" if version == ERAS[1] else None)
        assert (await front.call("nothing", {}, version=version)).error["code"] == -32601


async def test_h9_safe_tells_that_it_failed_and_no_more(tmp_path: Path) -> None:
    """Where exceptions are not to be exposed, only sentences that were written for callers stand."""
    async with erring(tmp_path, said={"core.errors.expose": "safe"}) as front:
        for tool in ("mapped", "absent", "broken", "formed", "guarded"):
            answer = await front.call(tool, {})
            assert answer.failure["stage"] == TABLE[tool][0]
            assert (
                "hunter2" not in answer.text and "nowhere" not in answer.text and "not you" not in answer.text
            )
        assert (await front.call("user", {})).text == "Pick another day."
        assert (await front.call("locked", {})).text == "unauthorized: invalid api key"


async def test_h9_each_tool_has_its_own_mode(tmp_path: Path) -> None:
    """What a tool says of errors counts more than its server's word, and that more than the adapter's."""
    settings = SETTINGS.replace(
        "upstream: {transport: hosted}", "upstream: {transport: hosted}\n    errors: {mode: jsonrpc}"
    ).replace("user, handler:", "user, errors: {mode: result}, handler:")
    async with erring(tmp_path, settings=settings) as front:
        assert (await front.call("broken", {})).error["code"] == -32000
        assert (await front.call("user", {})).failure["stage"] == "handler"


async def test_h2_a_tool_is_found_by_its_exact_name(tmp_path: Path) -> None:
    """Neither case, blanks nor a part of the name will do; the settings say the code."""
    async with erring(tmp_path, said={"core.errors.unknown_tool_code": "-32602"}) as front:
        for name in ("User", "user ", "use", "", "shop.user"):
            assert (await front.call(name, {})).error["code"] == -32602, name
        assert (await front.call("user", {})).failure["stage"] == "handler"
