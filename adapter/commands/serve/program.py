"""The program of this process, replaced by itself with other arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from adapter.startup.systemd import ServiceNotifier


def replace_program(argv: Sequence[str], service: ServiceNotifier) -> NoReturn:
    """Run ``mcp-adapter`` with other arguments in the place of this program."""
    sys.stdout.flush()
    sys.stderr.flush()
    # A program that was found by its path does not look for its modules in the working directory.
    safe = [] if sys.path[0] in ("", str(Path.cwd())) else ["-P"]
    command = [sys.executable, *safe, "-m", "adapter", *argv]
    os.execve(sys.executable, command, {**os.environ, **service.variables})  # noqa: S606 - ourselves
