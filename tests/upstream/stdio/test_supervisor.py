"""The supervisor: no child outlives the adapter, whoever is killed, and nothing is left of those that ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog import get_logger

from adapter.errors import UpstreamNotStarted
from adapter.upstream.stdio.child import ChildProcess, ChildSpec
from adapter.upstream.stdio.supervisor import Supervisor
from tests.upstream.stdio.children import (
    ECHO,
    ENVIRONMENT,
    ROOT,
    STUBBORN,
    Start,
    Witness,
    descriptors,
    lives,
    vanished,
)
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@contextlib.asynccontextmanager
async def family(count: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, list[int]]]:
    """Another adapter with so many children: its process, its supervisor and all that the children are."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.upstream.stdio.families", str(count)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            supervisor = int(await process.stdout.readline())
            lines = [await process.stdout.readline() for _ in range(count)]
        yield process, supervisor, [int(pid) for line in lines for pid in line.split()]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def children_of(pid: int | None) -> list[int]:
    """The children of a process, with those that wait to be reaped."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_no_child_outlives_an_adapter_that_is_killed() -> None:
    """After kill -9 of an adapter with 50 children, each with two of its own, all are gone within 3 s."""
    async with family(50) as (adapter, supervisor, members):
        assert len(members) == 150
        assert all(map(lives, members))
        adapter.kill()
        assert await vanished([*members, supervisor], seconds=3)


async def test_no_child_outlives_a_supervisor_that_is_killed(supervisor: Supervisor, start: Start) -> None:
    """The owners are told, what the children had started is ended too, and new children start."""
    owner = Witness()
    await start(STUBBORN, owner)
    members = [int(pid) for pid in (await owner.line()).split()]
    first = supervisor.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    ended = await owner.end()
    assert (ended.signal, ended.requested) == (signal.SIGKILL, False)
    assert await vanished(members)
    after = Witness()
    await start(ECHO, after)
    assert supervisor.pid not in (None, first)
    after.outgoing.put(b"{}")
    assert await after.line() == b"{}"


async def test_the_next_adapter_ends_what_both_have_left_behind(supervisor: Supervisor) -> None:
    """If an adapter and its supervisor are killed at once, the next one finds the rest by its mark, and only that."""
    async with family(2) as (living, _, others), family(2) as (adapter, its_supervisor, members):
        # Stopped first, so that none of them sees the other's end.
        os.kill(its_supervisor, signal.SIGSTOP)
        adapter.kill()
        os.kill(its_supervisor, signal.SIGKILL)
        children, grandchildren = members[::3], [pid for pid in members if pid not in members[::3]]
        assert await vanished(children)
        await supervisor.open()
        assert await vanished(grandchildren, seconds=1)
        assert all(map(lives, others))
        assert living.returncode is None


async def test_signals_to_a_service_do_not_end_its_supervisor(supervisor: Supervisor, start: Start) -> None:
    """A service manager sends TERM to every process of a service; this one is needed until the adapter has ended."""
    await supervisor.open()
    assert supervisor.pid is not None
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(supervisor.pid, each)
    owner = Witness()
    await start(ECHO, owner)
    owner.outgoing.put(b"{}")
    assert await owner.line() == b"{}"


@pytest.mark.deep
async def test_three_hundred_children_leave_nothing(supervisor: Supervisor) -> None:
    """Half of them are stopped, half are killed: no child, no zombie, no descriptor is left here or there."""
    spec = ChildSpec(("cat",), ENVIRONMENT)
    await supervisor.open()
    here, there = descriptors(), descriptors(supervisor.pid or 0)

    async def live_once(number: int) -> None:
        owner = Witness()
        child = await ChildProcess.start(supervisor, spec, owner, get_logger())
        owner.outgoing.put(b"%d" % number)
        assert await owner.line() == b"%d" % number
        if number % 2:
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            await owner.end()
        await child.stop()

    for first in range(0, 300, 30):
        await asyncio.gather(*(live_once(number) for number in range(first, first + 30)))
    assert children_of(supervisor.pid) == []
    assert supervisor.pid in children_of(os.getpid())
    assert (descriptors(), descriptors(supervisor.pid or 0)) == (here, there)


async def test_fifty_children_at_once_are_not_mixed_up(start: Start) -> None:
    """Each answer comes from the child that was asked."""
    owners = [Witness() for _ in range(50)]
    children = await asyncio.gather(*(start(STAMP, owner) for owner in owners))
    for number in range(20):
        for owner in owners:
            owner.outgoing.put(b"%d" % number)
    for child, owner in zip(children, owners, strict=True):
        await owner.until(lambda owner=owner: len(owner.lines) == 20)  # type: ignore[misc]  # mypy cannot infer it
        assert owner.lines == [b"%d of %d" % (number, child.pid or 0) for number in range(20)]


async def test_a_start_that_is_cancelled_while_its_order_waits_is_never_ordered(
    supervisor: Supervisor, start: Start
) -> None:
    """Its descriptors are closed, and those that get their numbers are the pipes of other children."""
    await supervisor.open()
    before, pid = descriptors(), supervisor.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    spacious = {**ENVIRONMENT, "PADDING": "x" * 50_000}
    starts = [asyncio.ensure_future(start(ECHO, Witness(), environment=spacious)) for _ in range(24)]
    await asyncio.sleep(0)
    waiting = len(supervisor._orders)
    assert 1 < waiting < len(starts)
    for each in starts:
        each.cancel()
    await asyncio.wait(starts)
    # One may have left in part, so the rest of it follows; then all that did leave are ended.
    assert (descriptors(), len(supervisor._children)) == (before, 0)
    assert len(supervisor._orders) <= 1 + len(starts) - waiting + 1
    owners = [Witness() for _ in range(8)]
    others = [asyncio.ensure_future(start(STAMP, owner)) for owner in owners]
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGCONT)
    for child, owner in zip(await asyncio.gather(*others), owners, strict=True):
        owner.outgoing.put(b"me")
        assert await owner.line() == b"me of %d" % (child.pid or 0)
    await until(lambda: len(children_of(pid)) == len(owners))


STAMP = "import os, sys\nfor line in sys.stdin: print(line.strip(), 'of', os.getpid(), flush=True)"


async def test_closing_ends_every_child_and_the_process(supervisor: Supervisor, start: Start) -> None:
    """Also those that ignore TERM; each owner is told. It can be opened again."""
    owner = Witness()
    await start(STUBBORN, owner, stop_grace=60)
    members = [int(pid) for pid in (await owner.line()).split()]
    pid = supervisor.pid
    assert pid is not None
    await supervisor.close()
    assert supervisor.pid is None
    assert not any(map(lives, [*members, pid]))
    assert (await owner.end()).signal == signal.SIGKILL
    again = Witness()
    await start("print(1)", again)
    assert await again.line() == b"1"


async def test_the_supervisor_knows_no_secret_and_stays_small(supervisor: Supervisor) -> None:
    """Nothing of the adapter's environment is in its own; it has loaded hardly more than Python."""
    await supervisor.open()
    assert Path(f"/proc/{supervisor.pid}/environ").read_bytes() == b""
    memory = Path(f"/proc/{supervisor.pid}/smaps_rollup").read_text()
    proportional = next(line for line in memory.splitlines() if line.startswith("Pss:"))
    assert int(proportional.split()[1]) < 12 * 1024


@pytest.mark.parametrize("more", [1, 3], ids=["none for the child", "none for the news of it"])
async def test_a_supervisor_without_descriptors_refuses_a_start(
    supervisor: Supervisor, start: Start, more: int
) -> None:
    """The other children go on, and nothing is left open."""
    other = Witness()
    await start(ECHO, other)
    assert supervisor.pid is not None
    opened = descriptors(supervisor.pid)
    highest = max(int(each.name) for each in Path(f"/proc/{supervisor.pid}/fd").iterdir())
    limits = resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, (highest + 1 + more, limits[1]))
    with pytest.raises(UpstreamNotStarted) as refused:
        await start(ECHO, Witness())
    assert "Too many open files" in str(refused.value.reason or refused.value)
    resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, limits)
    other.outgoing.put(b"still here")
    assert await other.line() == b"still here"
    assert descriptors(supervisor.pid) == opened
    again = Witness()
    await start(ECHO, again)
    again.outgoing.put(b"me too")
    assert await again.line() == b"me too"


async def test_idle_children_cost_nothing(supervisor: Supervisor, start: Start) -> None:
    """While nobody says a word the supervisor is not even woken up."""
    children = [await start(ECHO, Witness()) for _ in range(5)]
    status = Path(f"/proc/{supervisor.pid}/status")

    def wakes() -> str:
        return next(each for each in status.read_text().splitlines() if each.startswith("voluntary_ctxt"))

    await asyncio.sleep(0.3)
    before = wakes()
    await asyncio.sleep(0.5)
    assert wakes() == before
    assert all(child.is_running for child in children)
