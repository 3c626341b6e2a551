"""What a page shows, used as a reader uses it: files pasted into an empty folder, commands typed there."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.processes import answers, start
from tests.e2e.provision import packages
from tests.e2e.test_playwright import QUIET


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of ``language`` on a page, in order, as they stand between the fences."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Machine:
    """A new user's machine: ``folder`` to work in and a home, both empty, and an npx that finds Playwright MCP."""

    folder: Path
    home: Path
    path: str

    @property
    def variables(self) -> Mapping[str, str]:
        return {"HOME": str(self.home), "PATH": self.path}

    @asynccontextmanager
    async def serving(self, port: int, *arguments: str | Path, **variables: str) -> AsyncIterator[str]:
        """``mcp-adapter serve`` on a free port, until the block ends; the base of its URLs."""
        command: list[str | Path] = ["env", "-C", self.folder, "mcp-adapter", "serve", *arguments]
        log = self.folder / "adapter.log"
        async with await start(
            [*command, "--port", str(port)], log, {**self.variables, **variables}
        ) as running:
            await answers(f"http://127.0.0.1:{port}/livez", running)
            yield f"http://127.0.0.1:{port}"


def machine(place: Path, node: Path, chromium: Path) -> Machine:
    """A machine below ``place``. Its npx is the real one, which installs nothing, since the package is there; the
    browser that it starts is the system's, and quiet."""
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("npx is not installed")
    folder, home, programs = place / "folder", place / "home", place / "programs"
    for each in (folder, home, programs):
        each.mkdir()
    browser = {"executablePath": str(chromium), "chromiumSandbox": False, "args": QUIET}
    settings = place / "playwright.json"
    settings.write_text(json.dumps({"browser": {"launchOptions": browser}}))
    shim = programs / "npx"
    shim.write_text(
        f"#!/bin/sh\nexport PATH='{node.parent}':\"$PATH\" PLAYWRIGHT_MCP_CONFIG='{settings}' npm_config_offline=true\n"
        f"exec '{npx}' \"$@\"\n"
    )
    shim.chmod(0o755)
    # npx looks for packages in the folders above its own.
    (place / "node_modules").symlink_to(packages())
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    return Machine(folder, home, path)
