"""One process that checks values, from the adapter's side: a thread waits for it, and it can be ended at any time."""

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
from adapter.rules.schema.cost import PARTS
from adapter.rules.schema.wording import read_fault
from adapter.wire.envelope import parse

STARTING = 15.0
"""Seconds that a process may take to be ready."""

LONGEST_ANSWER = 4 << 20
"""Bytes that a process may answer."""

_GRACE = 1.0
"""Seconds until a process ends a check by itself, where the adapter has not: it was killed."""

# Libraries that are not written in Python end a process when there is no memory left for them.
_WITHOUT_MEMORY = (OUT_OF_MEMORY, -signal.SIGSEGV, -signal.SIGABRT)

_COMMAND = (sys.executable, "-P", "-m", "adapter.hosted.validation.worker")


@dataclass(frozen=True, slots=True)
class ValidationLimits:
    """The limits of one check, the number of processes, and the number of checks of one owner that may wait.

    ``seconds`` are of the wall clock, ``memory`` is in bytes of a process. A process that has been idle for ``idle``
    seconds is ended.
    """

    seconds: float = 2.0
    memory: int = 512 << 20
    workers: int = 2
    queue: int = 8
    idle: float = 30.0


class ProcessFailed(Exception):
    """A process that did not start, or ended by itself."""


class ValidationProcess:
    """A process that is started at once. Raises ProcessFailed when that fails."""

    def __init__(self, limits: ValidationLimits) -> None:
        self._limits = limits
        self._is_late = False
        self.usable = True
        try:
            self._process = subprocess.Popen(  # noqa: S603  (it is this very interpreter)
                [*_COMMAND, str(limits.memory), str(limits.seconds + _GRACE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                cwd=os.sep,
            )
        except OSError as error:
            raise ProcessFailed(f"a process for validation cannot be started: {error.strerror}") from error

    def wait_until_ready(self) -> None:
        """Wait until the process answers. Raises ProcessFailed when it does not start."""
        with self._within(STARTING):
            ready = self._read(len(READY))
        if ready != READY:
            raise ProcessFailed("a process for validation did not start")

    def verdict(self, request: bytes) -> CheckVerdict:
        """The answer to one request. A process that has ended is not ``usable`` any more. Raises ProcessFailed."""
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
        """End the process soon, also in the midst of a check."""
        self._process.kill()

    def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self.kill()
        with contextlib.suppress(OSError, ValueError):
            # What it had not read is not written any more.
            self._process.communicate()

    def _ended(self) -> CheckVerdict:
        """The verdict of a check during which the process ended or was killed. Raises ProcessFailed."""
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
        case "seconds":
            return f"Checking the value needs more than {limits.seconds:g} s."
        case "memory":
            return f"Checking the value needs more than {limits.memory} bytes of memory."
    return f"The schema has more than {PARTS} parts."


def _environment() -> dict[str, str]:
    """The variables that are needed to find this package. The adapter's own hold secrets and are not passed on."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
