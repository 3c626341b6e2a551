"""The command line as a user meets it: a process in a folder of its own.

The process is forked from one that has imported the command line, which takes a fifth of the time of a start.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from adapter.__main__ import main

ADAPTER = Path(sys.executable).with_name("mcp-adapter")

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["adapter.app", "adapter.commands.check", "adapter.commands.client.call", "adapter.settings.root"]
)

ONE_SERVER = "servers: [{id: a, upstream: {url: 'http://127.0.0.1:9/mcp'}}]\n"


def mcp_adapter(
    place: Path, *arguments: str | Path, stdin: str | Path = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in ``place`` to its end, without the settings that this process has in its environment."""
    environ = {name: value for name, value in os.environ.items() if "ADAPTER_" not in name.upper()}
    environ |= {"COLUMNS": "100"} | variables
    argv = [str(ADAPTER), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("in", "out", "err")]
        if isinstance(stdin, Path):
            streams[0] = stdin  # such as a terminal
        else:
            streams[0].write_text(stdin)
        process = FORKS.Process(target=_command, args=(place, argv, environ, streams))
        process.start()
        process.join(60)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(argv, 60)
        return subprocess.CompletedProcess(
            argv, process.exitcode, *(path.read_text() for path in streams[1:])
        )


def _command(place: Path, argv: list[str], environ: dict[str, str], streams: list[Path]) -> None:
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = argv
    sys.stdin = open(0)  # noqa: SIM115  # it ends with the process
    main()
