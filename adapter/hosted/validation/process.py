"""One process that checks values, as the adapter has it: asked by a thread that may wait, ended at any moment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter.errors import BadJson
from adapter.hosted.validation.worker import LENGTH, OUT_OF_MEMORY, READY
from adapter.pipeline.schema_checks import CheckVerdict
from adapter.rules.schema.checker import PARTS, STEPS
from adapter.rules.schema.wording import read_fault
from adapter.wire.envelope import parse

STARTING = 15.0
"""Seconds that a process may take to be ready."""

LONGEST_ANSWER = 4 << 20
"""Bytes that a process may answer."""

# Libraries that are not written in Python end a process when there is no memory left for them.
_WITHOUT_MEMORY = (OUT_OF_MEMORY, -signal.SIGSEGV, -signal.SIGABRT)

_COMMAND = (sys.executable, "-P", "-m", "adapter.hosted.validation.worker")


@dataclass(frozen=True, slots=True)
class ValidationLimits:
    """What one check may take, how many processes there are, and how many checks of one owner may wait.

    ``seconds`` are of the wall, ``memory`` is in bytes of a process. One that nobody has needed for ``idle`` seconds is
    ended.
    """

    steps: int = STEPS
    seconds: float = 2.0
    memory: int = 512 << 20
    workers: int = 2
    queue: int = 8
    idle: float = 30.0


class ProcessFailed(Exception):
    """A process did not start, or ended for no reason of ours."""


class ValidationProcess:
    """Started at once. Raises ProcessFailed when it cannot be."""

    def __init__(self, limits: ValidationLimits) -> None:
        self._limits = limits
        self._is_late = False
        self.usable = True
        try:
            self._process = subprocess.Popen(  # noqa: S603  (it is this very interpreter)
                [*_COMMAND, str(limits.memory), str(limits.steps)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                cwd=os.sep,
                start_new_session=True,
            )
        except OSError as error:
            raise ProcessFailed(f"a process for validation cannot be started: {error.strerror}") from error

    def __repr__(self) -> str:
        return f"<ValidationProcess {self._process.pid}>"

    def wait_until_ready(self) -> None:
        """Raises ProcessFailed for one that does not start."""
        with self._within(STARTING):
            ready = self._read(len(READY))
        if ready != READY:
            raise ProcessFailed("a process for validation did not start")

    def verdict(self, request: bytes) -> CheckVerdict:
        """What it makes of a request. It is not ``usable`` any more when it has ended. Raises ProcessFailed."""
        assert self._process.stdin is not None
        with self._within(self._limits.seconds):
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(request)
                self._process.stdin.flush()
            head = self._read(LENGTH.size)
            length = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else 0
            answer = self._read(length) if length <= LONGEST_ANSWER else b""
        if length and len(answer) == length:
            with contextlib.suppress(BadJson, LookupError, TypeError, ValueError):
                return _verdict(parse(answer), self._limits)
        return self._ended()

    def kill(self) -> None:
        """Whatever it is at, it ends soon."""
        self._process.kill()

    def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self.kill()
        with contextlib.suppress(OSError, ValueError):
            # What it had not read is not written any more.
            self._process.communicate()

    def _ended(self) -> CheckVerdict:
        """What is to be said of a check in the midst of which it has ended, or had to be. Raises ProcessFailed."""
        self.usable = False
        self.end()
        if self._is_late:
            return CheckVerdict(exceeded=_exceeded("seconds", self._limits))
        if self._process.returncode in _WITHOUT_MEMORY:
            return CheckVerdict(exceeded=_exceeded("memory", self._limits))
        raise ProcessFailed(f"a process for validation ended with status {self._process.returncode}")

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.read(size)

    @contextlib.contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """Kill the process when the body takes longer."""
        timer = threading.Timer(seconds, self._kill_late)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _kill_late(self) -> None:
        self._is_late = True
        self.kill()


def _verdict(answer: Mapping[str, Any], limits: ValidationLimits) -> CheckVerdict:
    if "exceeded" in answer:
        return CheckVerdict(exceeded=_exceeded(answer["exceeded"], limits))
    if "invalid" in answer:
        return CheckVerdict(invalid=answer["invalid"])
    return CheckVerdict([read_fault(fault) for fault in answer["faults"]], answer["unjudged"])


def _exceeded(what: str, limits: ValidationLimits) -> str:
    match what:
        case "steps":
            return f"Checking the value needs more than the {limits.steps} steps that validation.max_steps allows."
        case "seconds":
            return f"Checking the value needs more than the {limits.seconds:g} s that validation.max_seconds allows."
        case "memory":
            return f"Checking the value needs more than the {limits.memory} bytes that validation.max_memory allows."
    return f"The schema has more than {PARTS} parts."


def _environment() -> dict[str, str]:
    """Enough to find this very package. The adapter's own variables hold secrets and are not passed on."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
