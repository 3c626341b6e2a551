"""What a page shows, used as a reader uses it: files pasted into an empty folder, commands typed there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.doc_blocks import Block
from tests.e2e.browsers import QUIET
from tests.e2e.provision import packages
from tests.ports import free_port

SHOWN_PORT = "8932"
"""The port of the pages; the reader's own port takes its place."""

TIMEOUT = 60
"""Seconds one command may take."""


@dataclass(frozen=True)
class Beginner:
    """Somebody with an empty home, who types in ``folder`` and has the port ``port`` free."""

    folder: Path
    home: Path
    port: int
    programs: Path

    @property
    def variables(self) -> dict[str, str]:
        path = [str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MCP_"))}
        own = {"HOME": str(self.home), "PATH": os.pathsep.join(path), "ADAPTER_CORE__PORT": str(self.port)}
        return {**kept, **own}

    def types(self, command: str, **variables: str) -> str:
        """The output of shell text, which must succeed."""
        ran = subprocess.run(
            ["bash", "-euc", command.replace(SHOWN_PORT, str(self.port))],
            cwd=self.folder,
            env={**self.variables, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    @contextmanager
    def runs(self, command: str, ready: str, **variables: str) -> Iterator[str]:
        """A command that serves until it is stopped; what it printed up to a line with ``ready``."""
        log = self.home / "printed.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command.replace(SHOWN_PORT, str(self.port))}"],
                cwd=self.folder,
                env={**self.variables, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            while ready not in (printed := log.read_text()):
                assert process.poll() is None, f"{command} ended:\n{printed}"
                time.sleep(0.05)
            yield printed
        finally:
            # Not SIGINT: where the tests run in the background of a shell it is ignored, until the command serves.
            process.terminate()
            try:
                process.wait(timeout=TIMEOUT)
            finally:
                process.kill()


def newcomer(place: Path) -> Beginner:
    """A new user below ``place``."""
    folder, home, programs = [place / name for name in ("folder", "home", "programs")]
    for each in (folder, home, programs):
        each.mkdir()
    return Beginner(folder, home, free_port(), programs)


def newcomer_with_npx(place: Path, node: Path, chromium: Path) -> Beginner:
    """A new user whose npx is the real one, which installs nothing, since the package is there; the browser that it
    starts is the system's, and quiet."""
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("npx is not installed")
    found = newcomer(place)
    browser = {"executablePath": str(chromium), "chromiumSandbox": False, "args": QUIET}
    settings = place / "playwright.json"
    settings.write_text(json.dumps({"browser": {"launchOptions": browser}}))
    shim = found.programs / "npx"
    shim.write_text(
        f"#!/bin/sh\nexport PATH='{node.parent}':\"$PATH\" PLAYWRIGHT_MCP_CONFIG='{settings}' npm_config_offline=true\n"
        f"exec '{npx}' \"$@\"\n"
    )
    shim.chmod(0o755)
    # npx looks for packages in the folders above its own.
    (place / "node_modules").symlink_to(packages())
    return found


def lines(block: Block) -> list[str]:
    """The commands of a block, without comments."""
    joined = re.sub(r"\\\n\s*", " ", block.text)
    return [
        re.sub(r"\s{2,}#.*", "", line) for line in joined.splitlines() if line and not line.startswith("#")
    ]
