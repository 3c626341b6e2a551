"""Code of the user's that hangs, floods or never ends, in each stage and runtime; others do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.attacks.arena import Arena, attacked
from tests.e2e.processes import Adapter, adapter
from tests.edge.raw import INITIALIZE, RawClient
from tests.waiting import until

pytestmark = pytest.mark.e2e

WATCHED = 0.5
"""Seconds that an attack lasts at least, for the bystander to have been answered often enough."""

LIMIT = 1.0
"""Seconds that a call of these tools may take."""

AT_ONCE = 8
"""Calls that hang beside each other."""

CODE = """
import asyncio
import contextlib
import os
import time

from adapter.api import progress


def sleeps(*_):
    time.sleep(3600)


def spins(*_):
    while True:
        pass


async def waits(*_):
    await asyncio.Event().wait()


async def deaf(*_):
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def derived(ctx):
    time.sleep(3600)


async def around(ctx, args, next):
    await asyncio.Event().wait()


async def deaf_around(ctx, args, next):
    await deaf()


def steps(payload):
    number = 0
    while True:
        number += (100 - number) / 1e9
        yield progress(number)


async def asteps(payload):
    number = 0
    while True:
        number += (100 - number) / 1e9
        yield progress(number)


def silent_steps(payload):
    while True:
        yield None


async def silent_asteps(payload):
    while True:
        yield None


def large(payload):
    return ["x" * (1 << 20) for _ in range(1 << 8)]


def many(payload):
    return [[0] * 1_000 for _ in range(20_000)]


def fine(payload):
    return {"fine": True}


def prints(payload):
    while True:
        print("x" * 10_000)


def tells(payload):
    for number in range(10**9):
        yield progress(number / 10**7)
"""

PROGRAMS = {
    "floods.py": "while True: print('x' * 10_000)",
    "floods_errors.py": "import sys\nwhile True: sys.stderr.write('x' * 10_000)",
    "gibibyte.py": "import sys\nfor _ in range(1 << 14): sys.stdout.write('x' * (1 << 16))",
    "lists.py": "print('[' + '[],' * 2_700_000 + '[]]')",
    "deep.py": "print('[' * 4_000_000)",
    "quotes.py": "print(chr(34) + (chr(92) + chr(34)) * 2_000_000 + chr(44) * 300_000)",
    "closes.py": "import os, time\nos.close(1)\nos.close(2)\ntime.sleep(3600)",
    "lines.py": "import os\nfor _ in range(10**6): os.write(1, b'1\\n')",
    "deaf.py": "import signal\nfor n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: signal.pause()",
    "forks.py": "import os, time\nfor _ in range(20):\n  if os.fork() == 0:\n    time.sleep(3600)\nprint('1')",
    "escapes.py": (
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(20)\n  os._exit(0)\ntime.sleep(3600)"
    ),
}


def hosted(tools: Sequence[Mapping[str, Any]], **stages: Any) -> dict[str, Any]:
    """A server of these tools, each with the limit."""
    return {
        "id": "shop",
        "mount_path": "/shop",
        "upstream": {"transport": "hosted"},
        "stages": {"*": {"limits": {"timeout": LIMIT}}, **stages},
        "tools": {"define": list(tools)},
    }


@contextlib.asynccontextmanager
async def shop(
    place: Path, tools: Sequence[Mapping[str, Any]], *, stages: Mapping[str, Any] = {}, **sections: Any
) -> AsyncIterator[Arena]:
    """The adapter, whose attacked server is of these tools."""
    (place / "code.py").write_text(CODE)
    for name, source in PROGRAMS.items():
        (place / name).write_text(source)
    # The arena's own server stays unused: what is attacked is the adapter itself.
    async with attacked(
        place, "http://127.0.0.1:9/mcp", servers=[hosted(tools, **stages)], **sections
    ) as arena:
        began = time.perf_counter()
        yield arena
        await asyncio.sleep(began + WATCHED - time.perf_counter())


async def called(
    arena: Arena | Adapter, tool: str, meta: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], float]:
    """The result of one call of a client of its own, and how long it took."""
    port = arena.port if isinstance(arena, Adapter) else arena.adapter.port
    async with RawClient(port) as client:
        head, _ = await client.request("POST", INITIALIZE, "/shop")
        client.session = head["mcp-session-id"]
        params = {"name": tool, "arguments": {}, **({"_meta": dict(meta)} if meta else {})}
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        began = time.perf_counter()
        _, answer = await client.request("POST", body, "/shop")
        took = time.perf_counter() - began
    return last_message(answer)["result"], took


def last_message(answer: bytes) -> dict[str, Any]:
    """Of a JSON answer, or of a stream."""
    if answer.lstrip().startswith(b"{"):
        return dict(json.loads(answer))
    lines = [line for line in answer.splitlines() if line.startswith(b"data:")]
    return dict(json.loads(lines[-1][5:]))


def stage_of(result: Mapping[str, Any]) -> tuple[str, str | None]:
    """Where a call failed, and the reason."""
    assert result["isError"] is True
    error = result["_meta"]["adapter/error"]
    return error["stage"], error.get("reason")


HANGING: dict[str, tuple[dict[str, Any], str]] = {
    "mapper": ({"mappers": {"input": "code.py#sleeps"}}, "input_transform"),
    "async_mapper": ({"mappers": {"input": "code.py#waits"}}, "input_transform"),
    "output_mapper": ({"mappers": {"output": "code.py#sleeps"}}, "output_transform"),
    "middleware": ({"middleware": ["code.py#around"]}, "middleware"),
    "deaf_middleware": ({"middleware": ["code.py#deaf_around"]}, "middleware"),
    "deriving_middleware": ({"middleware": ["code.py#derived"]}, "middleware"),
    "presenter": ({"presenter": "hangs"}, "presenter"),
    "plugin": ({"auth": {"plugin": "code.py#sleeps"}}, "auth"),
    "deaf_plugin": ({"auth": {"plugin": "code.py#deaf"}}, "auth"),
    "handler": ({"handler": "code.py#sleeps"}, "handler"),
    "deaf_handler": ({"handler": "code.py#deaf"}, "handler"),
}


async def test_w_code_that_hangs_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    """In any stage: its own callers hear in time where it was, and the bystander hears nothing."""
    tools = [{"name": how, "handler": "code.py#fine", **stages} for how, (stages, _) in HANGING.items()]
    presenters = {"hangs": {"json_schema": {"type": "object"}, "rules": ["code.py#sleeps"]}}
    async with shop(tmp_path, tools, presenters=presenters) as arena:
        for how, (_, stage) in HANGING.items():
            for result, took in await asyncio.gather(*(called(arena, how) for _ in range(AT_ONCE))):
                assert stage_of(result) == (stage, "timeout"), how
                assert 0.9 * LIMIT < took < LIMIT + 2, how


async def test_w_a_context_factory_that_hangs_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    """It stands before every planned tool, and before none that is piped."""
    tool = {"name": "t", "handler": "code.py#fine"}
    async with shop(tmp_path, [tool], context={"factory": "code.py#sleeps"}) as arena:
        answers = await asyncio.gather(*(called(arena, "t") for _ in range(AT_ONCE)))
    assert [stage_of(result) for result, _ in answers] == [("context", "timeout")] * AT_ONCE
    assert all(result["content"][0]["text"] == "context unavailable" for result, _ in answers)


async def test_w_code_that_never_ends_is_given_up(tmp_path: Path) -> None:
    """Generators that tell of progress or of nothing, and a loop: at their deadline their callers are answered."""
    ways = ("steps", "asteps", "silent_steps", "silent_asteps", "spins")
    async with shop(tmp_path, [{"name": how, "handler": f"code.py#{how}"} for how in ways]) as arena:
        for how in ways:
            answers = await asyncio.gather(called(arena, how), called(arena, how, {"progressToken": 1}))
            for result, took in answers:
                assert stage_of(result) == ("handler", "timeout"), how
                assert took < LIMIT + 2, how


async def test_w_what_is_too_large_is_no_result(tmp_path: Path) -> None:
    """What a script in process returns is measured before it is written; none of it may hold the interpreter."""
    tools = [{"name": how, "handler": f"code.py#{how}"} for how in ("large", "many")]
    async with shop(tmp_path, tools, stages={"*": {"limits": {"timeout": 20}}}) as arena:
        for how in ("large", "many"):
            result, _ = await called(arena, how)
            assert stage_of(result)[0] == "handler", how
            assert "has more than" in result["content"][0]["text"], how


SAID = {
    "floods.py": "wrote more than 8388608 bytes",
    "floods_errors.py": "wrote more than 8388608 bytes to standard error",
    "gibibyte.py": "wrote more than 8388608 bytes",
    "lists.py": "wrote more than 250000 values",
    "deep.py": "wrote more than 250000 values",
    "quotes.py": "is not JSON",
    "closes.py": "timed out after 1 s",
    "lines.py": "is not JSON",
    "deaf.py": "timed out after 1 s",
    "forks.py": None,
    "escapes.py": "timed out after 1 s",
    "code.py#prints": "wrote more than 8388608 bytes to standard error",
    "code.py#tells": "timed out after 1 s",
}


async def test_w_a_program_is_bounded_in_all_it_does(tmp_path: Path) -> None:
    """Output, values, children that hold pipes, signals that it does not hear: ended, and its group with it."""
    tools, stages = [], {}
    for name, (program, said) in enumerate(SAID.items()):
        tools.append({"name": f"t{name}", "handler": program, "runtime": "subprocess"})
        stages[f"t{name}"] = {"limits": {"timeout": LIMIT if "timed out" in str(said) else 20}}
    async with shop(tmp_path, tools, stages=stages) as arena:
        for name, (program, said) in enumerate(SAID.items()):
            before = arena.resident_bytes()
            result, _ = await called(arena, f"t{name}", {"progressToken": 1})
            text = result["content"][0]["text"]
            if said is None:
                assert text == "1", program
            else:
                assert result["isError"] and said in text, (program, text)
            assert arena.resident_bytes() - before < 100 << 20, program
            if program != "escapes.py":  # whose child left the group, as SECURITY.md says
                await gone(tmp_path / program)


def processes_of(program: Path) -> list[str]:
    """Those that run a program or were forked by it, zombies left out."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if bytes(program) in place.joinpath("cmdline").read_bytes().split(b"\0"):
                found.append(place.name)
    return found


async def gone(program: Path) -> None:
    """Returns when no process of a program is left."""
    await until(lambda: not (processes_of(program)))


@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_w_an_adapter_that_ends_leaves_no_program(tmp_path: Path, ending: str) -> None:
    """Neither one that ignores signals nor one that has closed its outputs; told to stop, or killed without a word."""
    programs = ("deaf.py", "closes.py")
    for program in programs:
        (tmp_path / program).write_text(PROGRAMS[program])
    tools = [{"name": program, "handler": program, "runtime": "subprocess"} for program in programs]
    settings = hosted(tools, **{program: {"limits": {"timeout": 300}} for program in programs})
    core = {"shutdown_grace_seconds": 0.5}
    async with adapter(tmp_path, "http://127.0.0.1:9/mcp", servers=[settings], core=core) as front:
        calls = [asyncio.ensure_future(called(front, program)) for program in 3 * programs]
        async with asyncio.timeout(10):
            for program in programs:
                while len(processes_of(tmp_path / program)) < 3:
                    await asyncio.sleep(0.05)
        await (front.kill() if ending == "kill" else front.stop())
        for program in programs:
            await gone(tmp_path / program)
    await asyncio.gather(*calls, return_exceptions=True)


async def test_w_the_list_of_clients_is_no_list_of_threads(tmp_path: Path) -> None:
    """With a hundred threads left over no other is begun, and every caller hears why."""
    tools = [{"name": "t", "handler": "code.py#sleeps"}, {"name": "quick", "handler": "code.py#waits"}]
    stages = {"t": {"limits": {"timeout": 0.2}}}
    async with shop(tmp_path, tools, stages=stages) as arena:
        for _ in range(14):
            answers = await asyncio.gather(*(called(arena, "t") for _ in range(AT_ONCE)))
        texts = {result["content"][0]["text"] for result, _ in answers}
        assert any("are still running" in text for text in texts), texts
