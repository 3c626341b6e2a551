"""Reading of the settings by a child process, run in a Python of its own because it forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from adapter.settings.file.reading import ForkedRead, ReadSettings
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError

def read():
    from adapter.settings.file.load import load
    {failure}
    return ReadSettings(load(Path(sys.argv[1]), environ={{}}), (Problem("core", "is this meant?"),))

reading = ForkedRead(read, SettingsError, ChildProcessError("nobody has read"))
try:
    settings, cautions = reading.result()
except SettingsError as refused:
    print(type(refused).__name__, refused.problems)
except ChildProcessError as failed:
    print(failed)
else:
    {shown}
    print([name for name in ("yaml", "importlib.metadata") if name in sys.modules])
"""

FILE = """
core: {host: 0.0.0.0, trusted_proxies: 10.0.0.0/8}
uploads: {max_file_bytes: 1Mi}
servers:
- {id: a, upstream: {url: 'http://127.0.0.1:9/mcp'}, upstream_ping: {interval_seconds: 7}}
"""


def ran(
    tmp_path: Path, text: str = FILE, failure: str = "", shown: str = "pass"
) -> subprocess.CompletedProcess[str]:
    """A program that has ``text`` read as a file of settings; it may fail while it reads."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    program = PROGRAM.format(failure=failure, shown=shown)
    return subprocess.run(
        [sys.executable, "-c", program, file],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_settings_arrive_as_they_were_read(tmp_path: Path) -> None:
    """Values of every kind, the keys that the file has, the folder of the file, and the warnings; no reader's code."""
    shown = """
    server = settings.servers[0]
    print(settings.uploads.max_file_bytes, settings.core.said["host"], settings.ping_for(server).interval_seconds)
    print(settings.core.trusted_proxies, settings.directory == Path(sys.argv[1]).parent, cautions[0].path)
"""
    done = ran(tmp_path, shown=shown.strip())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["1048576 0.0.0.0 7.0", "[IPv4Network('10.0.0.0/8')] True core", "[]"]


def test_problems_arrive_with_their_places(tmp_path: Path) -> None:
    """Each is what it was where the file was read."""
    done = ran(tmp_path, "servers: [{id: a, upstream: {url: 'gopher://u'}}]")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "SettingsError (Problem(path='servers[0].upstream.url', sentence='must be an http"
    )


def test_a_reader_that_fails_says_why_and_has_no_settings(tmp_path: Path) -> None:
    """The traceback is on stderr, for whoever started the program."""
    done = ran(tmp_path, failure="raise LookupError('of the reader')")
    assert "LookupError: of the reader" in done.stderr
    assert done.stdout == "nobody has read\n"


def test_a_reader_that_is_killed_has_no_settings(tmp_path: Path) -> None:
    """Nobody waits for a process that has gone."""
    done = ran(tmp_path, failure="import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "nobody has read\n"


def test_settings_longer_than_a_pipe_holds_arrive(tmp_path: Path) -> None:
    """A pipe holds 64 KiB, and nobody reads it while code is loaded."""
    servers = "".join(f"- {{id: s{n}, upstream: {{url: 'http://127.0.0.1:9/mcp'}}}}\n" for n in range(300))
    done = ran(tmp_path, "servers:\n" + servers, shown="print(len(settings.servers))")
    assert done.stdout.splitlines()[0] == "300"
