"""Leftovers are found by the mark in their environment, and only those whose supervisor is gone are ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.upstream.stdio.process_table import MARK, end_leftovers, identity, mark_of, marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

NAMESPACE, PID, START = identity().split(":")


@contextlib.contextmanager
def sleeper(mark: str | None) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a mark. The supervisor of another test, which looks everywhere, may end it at any time."""
    environment = {"PATH": os.defpath, **({MARK: mark} if mark is not None else {})}
    with subprocess.Popen(["sleep", "600"], env=environment) as process:
        try:
            # Popen returns when the program is being loaded, a moment before its environment can be read.
            while process.poll() is None and not Path(f"/proc/{process.pid}/environ").read_bytes():
                time.sleep(0.001)
            yield process
        finally:
            process.kill()


def test_a_mark_is_read_from_the_environment() -> None:
    """It names the supervisor and the number of the child."""
    with sleeper(f"{identity()}/7") as process:
        assert mark_of(process.pid) == (identity(), 7)
        assert (process.pid, identity(), 7) in marked()


@pytest.mark.parametrize("mark", [None, "", "7", "a:b:c", "a:1:2/x", "/"])
def test_a_text_that_is_no_mark_is_none(mark: str | None) -> None:
    """Anybody may have set the variable."""
    with sleeper(mark) as process:
        assert mark_of(process.pid) is None
        end_leftovers()
        assert process.poll() is None


def test_a_process_that_is_gone_has_no_mark() -> None:
    """It may end at any time while it is looked at."""
    with sleeper(f"{identity()}/7") as process:
        process.kill()
        process.wait()
        assert mark_of(process.pid) is None


@pytest.mark.parametrize(
    ("supervisor", "ended"),
    [
        (f"{NAMESPACE}:{PID}:{START}", False),
        (f"{NAMESPACE}:{PID}:1", True),
        (f"{NAMESPACE}:999999999:{START}", True),
        (f"1:999999999:{START}", False),
        (f"{NAMESPACE}:x:{START}", False),
        (f"{NAMESPACE}:{PID}:", False),
        ("", False),
    ],
    ids=["living", "other process", "gone", "other namespace", "no id", "no time", "nothing"],
)
def test_only_what_no_supervisor_can_end_is_ended(supervisor: str, ended: bool) -> None:
    """The supervisor is the process with that id and that time of its start, in this namespace of process ids."""
    with sleeper(f"{supervisor}/3") as process:
        end_leftovers()
        assert (process.wait(5) == -9) if ended else (process.poll() is None)
