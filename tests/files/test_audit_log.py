"""Lines appended to a file: whole, before anybody goes on, and wherever the file is now."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import termios
import tty
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

from adapter.errors import AuditUnavailable
from adapter.files.audit_log import RESTS, SLOW, AuditLog, is_local
from tests.waiting import until


async def test_a_line_is_there_when_its_write_ends(tmp_path: Path) -> None:
    """In the order in which they came, also many at once."""
    log = AuditLog(tmp_path / "audit.log")
    await log.write(b"one\n")
    assert (tmp_path / "audit.log").read_bytes() == b"one\n"
    await asyncio.gather(*(log.write(b"%d\n" % number) for number in range(500)))
    assert (tmp_path / "audit.log").read_bytes() == b"one\n" + b"".join(b"%d\n" % n for n in range(500))
    assert (tmp_path / "audit.log").stat().st_mode & 0o007 == 0
    assert repr(log) == "<AuditLog to a file: 0 lines wait>"
    await log.close()


async def test_a_renamed_file_is_opened_again(tmp_path: Path) -> None:
    """As the usual tools rotate: rename, create or not; also when told so, and after a removal."""
    path = tmp_path / "audit.log"
    # A look at the file's name is due at each line.
    log = AuditLog(path, now=count().__next__, usage=lambda: used(7))
    await log.write(b"one\n")
    path.rename(tmp_path / "audit.log.1")
    await log.write(b"two\n")
    assert path.read_bytes() == b"two\n" and (tmp_path / "audit.log.1").read_bytes() == b"one\n"
    path.unlink()
    await log.write(b"three\n")
    log.reopen()
    await log.write(b"four\n")
    assert path.read_bytes() == b"three\nfour\n"
    os.truncate(path, 0)
    await log.write(b"five\n")
    assert path.read_bytes() == b"five\n"
    await log.close()


async def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """At start and at each line, and it goes on when it can."""
    path = tmp_path / "there" / "audit.log"
    log = AuditLog(path)
    with pytest.raises(AuditUnavailable):
        log.require()
    with pytest.raises(AuditUnavailable):
        await log.write(b"one\n")
    assert log.failing
    path.parent.mkdir()
    await log.write(b"two\n")
    assert not log.failing and path.read_bytes() == b"two\n"
    await log.close()


async def test_a_thread_that_could_not_be_started_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the machine has no more threads for a moment, the next line is written, and the first one before it."""

    def fail(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    log = AuditLog(tmp_path / "audit.log", patience=2)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(Thread, "start", fail)
        await log.write(b"one\n")
    await log.write(b"two\n")
    assert (tmp_path / "audit.log").read_bytes() == b"one\ntwo\n"
    await log.close()


async def test_a_line_that_was_cut_off_stays_alone(tmp_path: Path) -> None:
    """Where the disk was full within a line, the next one begins on a line of its own."""
    path = tmp_path / "audit.log"
    log = AuditLog(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
        await log.write(b"12345\n")
        with pytest.raises(AuditUnavailable):
            await log.write(b"67890\n")
        with pytest.raises(AuditUnavailable):
            await log.write(b"abcde\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    await log.write(b"fghij\n")
    assert path.read_bytes() == b"12345\n6789\nfghij\n"
    await log.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from adapter.files.audit_log import AuditLog

async def main():
    log = AuditLog(Path(sys.argv[1]))
    for start in range(0, 500, 50):
        await asyncio.gather(*(log.write(sys.argv[2].encode() * 1000 + b"\\n") for _ in range(50)))
    await log.close()

asyncio.run(main())
"""


async def test_lines_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    """Each line is one write to the end of the file."""
    path = tmp_path / "audit.log"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), letter]) for letter in "abc"]
    assert [await asyncio.to_thread(each.wait, 60) for each in writers] == [0, 0, 0]
    lines = path.read_bytes().splitlines()
    assert len(lines) == 1500
    assert all(len(set(line)) == 1 and len(line) == 1000 for line in lines)


@pytest.fixture
def terminal() -> Iterator[tuple[int, Path]]:
    """A terminal whose output is stopped, so that a write to it waits; its other end, and its path."""
    front, back = os.openpty()
    tty.setraw(back)
    termios.tcflow(back, termios.TCOOFF)
    try:
        yield front, Path(os.ttyname(back))
        termios.tcflow(back, termios.TCOON)
    finally:
        os.close(back)
        os.close(front)


async def test_a_disk_that_is_stuck_holds_nobody_for_long(terminal: tuple[int, Path]) -> None:
    """Whoever waits is told after a while, whoever comes later at once, and it goes on when the disk does."""
    reader, path = terminal
    log = AuditLog(path, patience=0.1)
    with pytest.raises(AuditUnavailable):
        await log.write(b"one\n")
    assert log.failing
    with pytest.raises(AuditUnavailable):
        await log.write(b"two\n")
    back = os.open(path, os.O_RDWR | os.O_NOCTTY)
    try:
        termios.tcflow(back, termios.TCOON)
    finally:
        os.close(back)
    await until(lambda: not (log.failing))
    await log.write(b"three\n")
    # A terminal hands on what was written when it comes to it.
    heard = b""
    while len(heard) < len(b"one\nthree\n"):
        heard += await asyncio.to_thread(os.read, reader, 100)
    assert heard == b"one\nthree\n"
    await log.close()


def used(waits: int) -> resource.struct_rusage:
    """The usage of a thread that has waited so often."""
    return resource.struct_rusage((0,) * 14 + (waits, 0))


async def test_a_slow_disk_is_left_to_the_thread(tmp_path: Path) -> None:
    """So is opening a file. After two lines that took long the loop writes none for a hundred times as long."""
    rest = 4 * SLOW + 2 * SLOW * RESTS
    readings = [0.0, 0.0, 2 * SLOW, 2 * SLOW, 4 * SLOW, rest - 0.1, *[rest + 0.1] * 2]
    log = AuditLog(tmp_path / "audit.log", now=lambda: readings.pop(0), usage=map(used, count()).__next__)
    for on_loop in (False, True, True, False, True):
        writing = asyncio.ensure_future(log.write(b"%d\n" % on_loop))
        await asyncio.sleep(0)
        assert writing.done() == on_loop
        await writing
    assert (tmp_path / "audit.log").read_bytes() == b"0\n1\n1\n0\n1\n"
    await log.close()


async def test_a_lost_processor_is_no_slow_disk(tmp_path: Path) -> None:
    """Lines that took long while their thread waited for nothing leave the next one on the loop."""
    readings = [0.0, 0.0, 2 * SLOW, 2 * SLOW, 4 * SLOW, 5 * SLOW, 5 * SLOW]
    log = AuditLog(tmp_path / "audit.log", now=lambda: readings.pop(0), usage=lambda: used(7))
    for on_loop in (False, True, True, True):
        writing = asyncio.ensure_future(log.write(b"%d\n" % on_loop))
        await asyncio.sleep(0)
        assert writing.done() == on_loop
        await writing
    await log.close()


@pytest.mark.parametrize("kinds", ["ext4", "tmpfs tmpfs", "nfs4", "fuse.sshfs", "ext4 nfs4", ""])
def test_only_file_systems_of_this_machine_are_local(tmp_path: Path, kinds: str) -> None:
    """As the system lists them; what is not listed may be held up by another machine."""
    rows = [f"9 1 8:3 / /dir\\040{kind} rw shared:1 - {kind} source rw" for kind in kinds.split()]
    mounts = tmp_path / "mountinfo"
    mounts.write_text("\n".join(["20 1 0:21 / /proc rw - proc proc rw", *rows, "", "odd"]))
    assert is_local(os.makedev(8, 3), mounts) == (kinds in ("ext4", "tmpfs tmpfs"))
    assert not is_local(os.makedev(8, 3), tmp_path / "missing")


async def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """Opening one waits for a reader, so neither start nor a line does; nor does a directory count as a file."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    log = AuditLog(path)
    with pytest.raises(AuditUnavailable) as refused:
        log.require()
    assert "for a pipe set stdout" in str(refused.value.__cause__)
    with pytest.raises(AuditUnavailable):
        await log.write(b"one\n")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(AuditUnavailable):
            await log.write(b"two\n")
    finally:
        os.close(reader)
    path.unlink()
    await log.write(b"three\n")
    assert path.read_bytes() == b"three\n"
    await log.close()
    with pytest.raises(AuditUnavailable):
        AuditLog(tmp_path).require()


STUCK = """
import asyncio
from adapter.errors import AuditUnavailable
from adapter.files.audit_log import AuditLog

async def main():
    log = AuditLog(None, patience=0.1)
    try:
        while True:
            await log.write(b"x" * 4000 + b"\\n")
    except AuditUnavailable:
        await log.close()

asyncio.run(main())
"""


async def test_a_stuck_disk_does_not_keep_the_process(tmp_path: Path) -> None:
    """It ends although a line of it was never taken."""
    process = subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, cwd=tmp_path)
    try:
        assert await asyncio.to_thread(process.wait, 60) == 0
    finally:
        process.kill()
        process.communicate()


async def test_a_writer_that_left_stops_nobody(tmp_path: Path) -> None:
    """Whoever does not wait any more takes no result, and the others have theirs."""
    log = AuditLog(tmp_path / "audit.log")
    gone = asyncio.ensure_future(log.write(b"one\n"))
    await asyncio.sleep(0)
    gone.cancel()
    await log.write(b"two\n")
    assert b"two\n" in (tmp_path / "audit.log").read_bytes()
    await log.close()
