"""Processes that check values: bounded in time, memory and number, shared fairly, and gone when they should be."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.errors import LimitReached
from adapter.hosted.validation.worker import ValidationServer
from adapter.hosted.validation.workers import (
    FAILED,
    ProcessFailed,
    ValidationLimits,
    ValidationProcess,
    ValidationWorkers,
)
from adapter.pipeline.validation_stage import CheckOwner, CheckVerdict
from adapter.rules.schema.checker import compile_schema
from tests.hosted.serving import LOG
from tests.waiting import until

DOUBLING = {
    "$ref": "#/$defs/0",
    "$defs": {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)} | {"40": {}},
}
ENDLESS = ValidationLimits(seconds=60)
NAMES = {"items": {"type": "string"}}
ANN = CheckOwner("one", "ann")


@asynccontextmanager
async def workers(limits: ValidationLimits = ValidationLimits()) -> AsyncIterator[ValidationWorkers]:  # noqa: B008  (a value)
    made = ValidationWorkers(limits, LOG)
    try:
        yield made
    finally:
        await made.close()


def asked(
    some: ValidationWorkers, schema: Any, value: Any, owner: CheckOwner = ANN, *, strict: bool = False
) -> asyncio.Task[CheckVerdict]:
    judging = some.judge(owner, orjson.dumps(schema), orjson.dumps(value), strict=strict)
    return asyncio.get_running_loop().create_task(judging)


def children() -> set[int]:
    """The processes that this one has started and that still are."""
    listed = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "adapter.hosted.validation.worker"],
        capture_output=True,
        text=True,
    )
    return set(map(int, listed.stdout.split()))


def is_busy(pid: int) -> bool:
    """Not only begun: it has used half a second of CPU."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]) > 50
    except OSError:
        return False


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- what is judged -----------------------------------------------------------------------------------------------


async def test_what_is_said_is_what_would_be_said_here() -> None:
    """Word for word, by one process for all of these."""
    schema = {**NAMES, "maxItems": 3}
    async with workers() as some:
        for value in ([], ["a", 1, 2, 3], [True, "x" * 1000, {}]):
            verdict = await asked(some, schema, value)
            here = compile_schema(schema).judged(value).faults
            assert [fault.error for fault in verdict.faults] == [fault.error for fault in here]
            assert [fault.text for fault in verdict.faults] == [fault.text for fault in here]
        assert repr(some) == "<ValidationWorkers: 1 processes, 0 checks>"
        assert (await asked(some, {"properties": {}}, {"q": 1}, strict=True)).faults[
            0
        ].keyword == "additionalProperties"
        assert (await asked(some, {"pattern": "(?=a)"}, "b")).unjudged == {
            "(?=a)": "look-around or a back-reference"
        }
        assert (await asked(some, {"type": "x"}, "b")).invalid == (
            "The schema is invalid at type: \"x\" is not valid under any of the schemas listed in the 'anyOf' keyword"
        )


def test_a_request_is_answered_in_json() -> None:
    """What the process itself says, without one."""
    server = ValidationServer()
    answer = server.answer((b'{"strict":false}', orjson.dumps(NAMES), b"[1]"))
    assert (answer["faults"][0][1], answer["unjudged"]) == ([0], {})
    assert "invalid" in server.answer((b'{"strict":false}', b"{", b"{}"))
    for number in range(20):
        server.answer((b'{"strict":false}', b'{"title":"%d"}' % number, b"{}"))
    assert repr(server) == "<ValidationServer: 8 schemas>"


# --- bounds -------------------------------------------------------------------------------------------------------


async def test_time_is_bounded() -> None:
    """The process is ended, and there is another one for the next check."""
    async with workers(ValidationLimits(seconds=0.5)) as some:
        said = "Checking the value needs more than 0.5 s."
        assert (await asked(some, DOUBLING, {})).exceeded == said
        assert (await asked(some, NAMES, [])).faults == []


@pytest.mark.parametrize("items", [500_000, 2_000_000])
async def test_memory_is_bounded(items: int) -> None:
    """A value that does not fit into the process is told so, wherever the process notices."""
    async with workers(ValidationLimits(memory=48 << 20)) as some:
        said = f"Checking the value needs more than {48 << 20} bytes of memory."
        assert (await asked(some, {}, [[n] for n in range(items)])).exceeded == said
        assert (await asked(some, NAMES, [])).faults == []


async def test_waiting_is_bounded_and_in_turns() -> None:
    """One server's checks wait for each other; another server's do not wait for them, nor one caller for another."""
    async with workers(ValidationLimits(seconds=1.0, queue=3)) as some:
        first = asked(some, DOUBLING, {})
        await until(lambda: bool(children()))
        hostile = [asked(some, DOUBLING, {}) for _ in range(3)]
        with pytest.raises(LimitReached, match="are waiting already"):
            await asked(some, DOUBLING, {})
        assert (await asked(some, NAMES, [], CheckOwner("two", "ann"))).faults == []
        assert (await asked(some, NAMES, [], CheckOwner("one", "bob"))).faults == []
        assert first.done() and not hostile[2].done()
        await asyncio.gather(*hostile)


async def test_who_leaves_is_not_waited_for() -> None:
    """A check that nobody waits for any more is not made."""
    async with workers(ValidationLimits(seconds=1.0)) as some:
        first, second = asked(some, DOUBLING, {}), asked(some, DOUBLING, {})
        await until(lambda: bool(children()))
        second.cancel()
        begun = time.monotonic()
        await first
        assert (await asked(some, NAMES, [])).faults == []
        assert time.monotonic() - begun < 20


async def test_a_process_that_hangs_is_ended_at_the_deadline() -> None:
    """It uses no CPU and answers nothing; the next check has another one."""
    async with workers(ValidationLimits(seconds=3.0)) as some:
        running = asked(some, DOUBLING, {})
        await until(lambda: bool(children()))
        (pid,) = children()
        await until(lambda: is_busy(pid))
        os.kill(pid, signal.SIGSTOP)
        said = "Checking the value needs more than 3 s."
        assert (await running).exceeded == said
        assert (await asked(some, NAMES, [])).faults == []
        assert pid not in children()


async def test_two_at_once_do_not_disturb_each_other() -> None:
    """One of them is busy and then killed, the other gives its answers all the time."""
    async with workers(ENDLESS) as some:
        hostile = asked(some, DOUBLING, {})
        await until(lambda: bool(children()))
        (pid,) = children()
        await until(lambda: is_busy(pid))
        other = CheckOwner("two", "bob")
        answers = await asyncio.gather(*(asked(some, NAMES, [n], other) for n in range(8)))
        assert [answer.faults[0].path for answer in answers] == [(0,)] * 8
        (own,) = children() - {pid}
        last = asked(some, NAMES, [[n] for n in range(50_000)], other)
        os.kill(pid, signal.SIGKILL)
        assert (await hostile).exceeded == FAILED
        assert len((await last).faults) == 100
        # The last check may have found the place of the killed process free, and begun one there.
        assert own in children() and pid not in children()


async def test_checks_that_come_while_a_thread_retires_are_made() -> None:
    """However closely one follows the end of the last process."""
    async with workers(ValidationLimits(workers=1, idle=0.01)) as some:
        async with asyncio.timeout(30):
            for pause in range(12):
                assert (await asked(some, NAMES, [])).faults == []
                await asyncio.sleep(0.008 + pause / 1000)


# --- the end of processes -----------------------------------------------------------------------------------------


async def test_a_process_that_is_killed_is_replaced() -> None:
    """The check in its midst is answered, the next one is made."""
    async with workers(ENDLESS) as some:
        running = asked(some, DOUBLING, {})
        await until(lambda: bool(children()))
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        assert (await running).exceeded == FAILED
        assert (await asked(some, NAMES, [])).faults == []


async def test_closing_ends_what_is_under_way() -> None:
    """At once, and nothing is left behind; who asks later is refused."""
    async with workers(ENDLESS) as some:
        running, waiting = asked(some, DOUBLING, {}), asked(some, DOUBLING, {})
        await until(lambda: bool(children()))
        begun = time.monotonic()
        await some.close()
        assert time.monotonic() - begun < 20
        assert (await running).exceeded == FAILED
        assert (await waiting).exceeded == FAILED
        with pytest.raises(LimitReached):
            await asked(some, NAMES, [])
    assert children() == set()


async def test_a_process_that_nobody_needs_is_ended() -> None:
    """It takes memory."""
    async with workers(ValidationLimits(idle=0.2)) as some:
        await asked(some, NAMES, [])
        await until(lambda: not children())
        assert repr(some) == "<ValidationWorkers: 0 processes, 0 checks>"
        assert (await asked(some, NAMES, [])).faults == []


PARENT = """
import asyncio, sys
from adapter import log
from adapter.hosted.validation.workers import ValidationLimits
from adapter.hosted.validation.workers import ValidationWorkers
from adapter.pipeline.validation_stage import CheckOwner

async def main():
    some = ValidationWorkers(ValidationLimits(seconds=10), log.get_logger("test"))
    await some.judge(CheckOwner("one", "ann"), sys.argv[1].encode(), b"{}", strict=False)

asyncio.run(main())
"""


async def test_closing_waits_for_a_process_that_is_ending_by_itself() -> None:
    """It was idle for too long just before, and leaves nothing behind."""
    async with workers(ValidationLimits(idle=0)) as some:
        await asked(some, NAMES, ["a"])
        await until(lambda: "0 processes" in repr(some))
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_no_process_outlives_an_adapter_that_was_killed() -> None:
    """In the midst of a check that would take years not for longer than a check may take."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, orjson.dumps(DOUBLING)])

    def child() -> list[int]:
        listed = subprocess.run(["pgrep", "-P", str(parent.pid)], capture_output=True, text=True)
        return list(map(int, listed.stdout.split()))

    await until(lambda: bool(child()))
    (pid,) = child()
    await until(lambda: is_busy(pid))
    parent.kill()
    parent.wait()
    await until(lambda: not is_alive(pid))


async def test_a_process_that_does_not_start_says_so() -> None:
    """Because the system ended it, for instance."""
    process = await ValidationProcess.start(ValidationLimits())
    process.kill()
    with pytest.raises(ProcessFailed, match="did not start"):
        await process.wait_until_ready()
    assert not process.usable and children() == set()
