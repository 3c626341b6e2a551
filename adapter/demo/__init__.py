"""``mcp-adapter demo``: a small MCP server, and a shop that the adapter hosts itself, at one address.

config.yaml is its configuration, welcome.txt is what a person reads, and the files in tools are the shop's tools.
"""

from __future__ import annotations

import argparse
import errno
import json
import re
import selectors
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from adapter.app.serve import serve
from adapter.extras import missing_extras
from adapter.settings.cautions import cautions
from adapter.settings.file.load import load
from adapter.settings.section import is_loopback
from adapter.upstream.demo import shop

ROOT = Path("data/demo")
"""Where the demo keeps its state between starts, below the directory it was started in."""

TOOLS = Path(__file__).with_name("tools")
"""The files of the shop's tools."""

CONFIGURATION = Path(__file__).with_name("config.yaml")
"""The demo's settings; ``@name@`` stands for a value."""

WELCOME = Path(__file__).with_name("welcome.txt")
"""The text for a person who starts the demo, with commands to paste. ``@name@`` stands for a value; lines between
``<console>`` and ``</console>`` are for a demo that has a console.
"""

_PLACE = re.compile(r"@([a-z]+)@")

_DATABASE = "shop.sqlite3"
_START_SECONDS = 30
_STOP_SECONDS = 5


class DemoFailed(Exception):
    """The demo cannot start; the error's text is for the person who started it."""


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped. Returns the exit status of the process, 2 when the address cannot be used.

    ``port`` 0 takes a free one. ROOT is created, and used again by the next start. The demo server is a process of its
    own on loopback and ends with this one, also when this one is killed.
    """
    host, port, root = arguments.host, arguments.port, ROOT.absolute()
    try:
        if (sentence := missing_extras("client", "hosted")) is not None:
            raise DemoFailed(f"The demo {sentence}")
        port = _free_port(host, port)
        with _demo_server(root) as upstream:
            shop.stock(root / _DATABASE)
            settings = load(_configuration(root, host, port, upstream), overrides={}, environ={})
            sys.stdout.write(welcome(host, port, root))
            sys.stdout.flush()
            return serve(settings, cautions(settings))
    except DemoFailed as error:
        sys.stderr.write(f"{error}\n")
        return 2


def welcome(host: str, port: int, root: Path) -> str:
    """The text printed at the start; ``root`` holds the demo's state."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 - compared, not bound
    base = f"http://{reachable}:{port}"
    values = {
        "url": f"{base}/mcp/all",
        "base": base,
        "python": shlex.quote(sys.executable),
        "tools": str(TOOLS),
        "root": str(root),
    }
    text, *marked = WELCOME.read_text().split("<console>\n")
    for part in marked:
        console, _, behind = part.partition("</console>\n")
        text += (console if is_loopback(host) else "") + behind
    return _filled(text, values)


def _free_port(host: str, port: int) -> int:
    """The port itself, or a free one for 0. Raises DemoFailed, before anything has started, where it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as listening:
            return int(listening.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            other = f"choose another port: mcp-adapter demo --port {port + 1}"
            raise DemoFailed(
                f"{host}:{port} is in use. Stop the program that listens there, or {other}"
            ) from None
        raise DemoFailed(f"The adapter cannot listen on {host}:{port}: {error.strerror}.") from None


@contextmanager
def _demo_server(root: Path) -> Iterator[str]:
    """Run a demo server as long as the block lasts; its endpoint."""
    command = [sys.executable, "-m", "adapter.upstream.demo", "--until-stdin-ends"]
    command += ["--folder", str(root / "files")]
    # Where the adapter puts files for tools and lets tools write; the state beside them is not the server's.
    command += ["--shared", str(root / "uploads"), "--shared", str(root / "artifacts")]
    # Its own process group: Ctrl-C reaches the adapter first, which then lets running calls finish.
    process = subprocess.Popen(  # noqa: S603 - our own module under our own interpreter
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    try:
        yield _first_line(process)
    finally:
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _first_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        line = selector.select(_START_SECONDS) and process.stdout.readline()
    if not line:
        raise DemoFailed("The demo server did not start; see its output above.")
    return line.decode().strip()


def _configuration(root: Path, host: str, port: int, upstream: str) -> Path:
    """Write the demo's configuration to a file, to be read and copied like any other."""
    path = root / "config.yaml"
    values = {
        "host": host,
        "port": port,
        "root": str(root),
        "console": is_loopback(host),
        "database": _DATABASE,
        "upstream": upstream,
        "tools": str(TOOLS),
    }
    # Every text of JSON is one of YAML.
    path.write_text(_filled(CONFIGURATION.read_text(), {key: json.dumps(values[key]) for key in values}))
    return path


def _filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its places (``@name@``) filled."""
    return _PLACE.sub(lambda place: values[place[1]], text)
