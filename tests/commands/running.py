"""The command line as a user meets it: a process in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ADAPTER = Path(sys.executable).with_name("mcp-adapter")

ONE_SERVER = "servers: [{id: a, upstream: {url: 'http://127.0.0.1:9/mcp'}}]\n"


def mcp_adapter(
    place: Path, *arguments: str | Path, stdin: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in ``place`` to its end, without the settings that this process has in its environment."""
    environ = {name: value for name, value in os.environ.items() if "ADAPTER_" not in name.upper()}
    command = [str(ADAPTER), *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=place,
        env=environ | {"COLUMNS": "100"} | variables,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )
