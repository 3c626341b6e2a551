"""The machine that a benchmark ran on, as far as its figures depend on it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from tests.missing import Missing
from tests.nginx import nginx_program

_MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
_NGINX = re.compile(r"nginx/(\S+)")


@dataclass(frozen=True)
class Machine:
    """``cores`` are those that the benchmark may use. ``nginx`` is empty where it is not installed."""

    cpu: str
    cores: int
    kernel: str
    python: str
    uvloop: str
    nginx: str

    @classmethod
    def here(cls) -> Machine:
        """The machine of this process."""
        return cls(
            cpu=_cpu_model(),
            cores=len(os.sched_getaffinity(0)),
            kernel=platform.release(),
            python=platform.python_version(),
            uvloop=version("uvloop"),
            nginx=_nginx_version(),
        )

    def __str__(self) -> str:
        return (
            f"Machine: {self.cpu}, {self.cores} cores; Linux {self.kernel}; Python {self.python}, "
            f"uvloop {self.uvloop}; nginx {self.nginx or 'is not installed'}"
        )

    def as_json(self) -> dict[str, str | int]:
        return asdict(self)


def _cpu_model() -> str:
    """The name of the processor; that of its kind where the kernel gives no name (ARM)."""
    found = _MODEL.search(Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else platform.machine()


def _nginx_version() -> str:
    try:
        program = nginx_program()
    except Missing:
        return ""
    said = subprocess.run([program, "-v"], capture_output=True, text=True, timeout=10).stderr
    found = _NGINX.search(said)
    return found[1] if found else "of an unknown version"
