"""Children that write without end: memory stays bounded, and the loop goes on for everybody else."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.wire.line_messages import Line, LongLine
from tests.upstream.stdio.children import Start, Witness

pytestmark = [pytest.mark.timed, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

MIB = 1 << 20
LONGEST_TURN = 0.05
MOST_MEMORY = 16 * MIB


class Turns:
    """The longest time that the loop's thread worked on something else. Its CPU time, so that other work counts not."""

    longest = 0.0

    async def watch(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.thread_time() - before)


class Counting(Witness):
    """An owner that keeps the last line only."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def received(self, line: Line) -> None:
        if not isinstance(line, LongLine):
            self.count += 1
            self.lines.clear()
        super().received(line)


def resident() -> dict[str, int]:
    """Bytes in memory: VmRSS now, VmHWM at the peak."""
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    return {line[0][:-1]: int(line[1]) * 1024 for line in lines if line[0] in ("VmRSS:", "VmHWM:")}


@contextlib.asynccontextmanager
async def bounded() -> AsyncIterator[None]:
    """Requires that the block keeps little memory and never holds the loop."""
    turns = Turns()
    watching = asyncio.ensure_future(turns.watch())
    # From here on the system records a new peak; see proc(5).
    Path("/proc/self/clear_refs").write_text("5")
    before = resident()["VmRSS"]
    try:
        yield
    finally:
        watching.cancel()
    assert resident()["VmHWM"] - before < MOST_MEMORY
    assert turns.longest < LONGEST_TURN


@pytest.mark.parametrize(
    ("line", "count"), [(b'{"jsonrpc":"2.0","method":"notifications/message"}', 1_000_000), (b"1", 2_000_000)]
)
async def test_a_million_lines(start: Start, line: bytes, count: int) -> None:
    """All of them come, some in each turn of the loop."""
    owner = Counting()
    async with bounded():
        whole = line + b"\n"
        program = f"""
import os
def write(data):
    while data: data = data[os.write(1, data):]
for _ in range(100): write({whole!r} * {count // 100})
"""
        await start(program, owner)
        await owner.end()
    assert (owner.count, owner.lines) == (count, [line])


async def test_a_flood_on_standard_error(start: Start) -> None:
    """A few lines of it are logged, the last ones are kept, each bounded."""
    owner = Counting()
    async with bounded():
        program = f"""
import os, sys
def write(data):
    while data: data = data[os.write(2, data):]
for _ in range(20): write(b'y' * {MIB})
for _ in range(5): write(b'\\nan error of the server' * {MIB // 23})
write(b'\\nlast words'); sys.exit(1)
"""
        await start(program, owner)
        ended = await owner.end()
    assert ended.error_lines == ("an error of the server",) * 19 + ("last words",)
