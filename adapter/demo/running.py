"""Starts what the demo consists of, and ends it again, however the adapter itself ends."""

from __future__ import annotations

import errno
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from adapter.app import serve
from adapter.demo import shop
from adapter.demo.welcome import welcome
from adapter.settings.core import is_loopback
from adapter.settings.file.load import load

ROOT = Path("data/demo")
"""Where the demo keeps its state between starts, below the directory it was started in."""

TOOLS = Path(__file__).with_name("tools")
"""The files of the shop's tools."""

_DATABASE = "shop.sqlite3"
_CUSTOMER = {
    "schema": {
        "code": "string",
        "name": "string",
        "region": "string",
        "email": "string",
        "phone": "string",
        "customer_since": "string",
        "open_orders": "int",
        "overdue_orders": "int",
    },
    "redact": {"paths": ["email", "phone"]},
    "rules": ["E-mail and phone are redacted: never guess them."],
    "suggest": [
        {
            "when": "overdue_orders > 0",
            "tool": "orders-of-customer",
            "reason": "See which orders are overdue",
        }
    ],
}
"""The demo's presenter: how models see a customer."""

_START_SECONDS = 30
_STOP_SECONDS = 5


class DemoFailed(Exception):
    """``str(error)`` is the sentence for the person who started the demo."""


def run(host: str, port: int, root: Path | None = None) -> int:
    """Serve until stopped; the process's exit status, 2 when the address cannot be used.

    ``port`` 0 takes a free one. ``root`` (default: ROOT) is created, and used again by the next start. The
    demo server is a process of its own on loopback and ends with this one, however this one ends.
    """
    root = (root or ROOT).absolute()
    try:
        port = _free_port(host, port)
        with _demo_server(root) as upstream:
            shop.stock(root / _DATABASE)
            settings = load(_configuration(root, host, port, upstream), overrides={}, environ={})
            sys.stdout.write(welcome(host, port, root, TOOLS, console=is_loopback(host)))
            sys.stdout.flush()
            return serve(settings)
    except DemoFailed as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _free_port(host: str, port: int) -> int:
    """The port itself, or a free one for 0; asked before anything starts, so a refusal is one sentence."""
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
    """The endpoint of a demo server that runs as long as the block does."""
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
        said = selector.select(_START_SECONDS) and process.stdout.readline()
    if not said:
        raise DemoFailed("The demo server did not start; see its output above.")
    return said.decode().strip()


def _configuration(root: Path, host: str, port: int, upstream: str) -> Path:
    """A configuration file like any other, which the curious may read and copy."""
    path = root / "config.yaml"
    settings = {
        "core": {"host": host, "port": port, "allow_artifacts_download": True},
        "storage": {"root": str(root)},
        "console": {"enabled": is_loopback(host), "allow_execute": True},
        "connectors": [
            {
                "name": "shop",
                "connector": "sqlite",
                "connection_string": _DATABASE,
                "options": {"mode": "ro"},
            }
        ],
        "presenters": {"customer": _CUSTOMER},
        "servers": [
            {
                "id": "demo",
                "mount_path": "/mcp/demo",
                "upstream": {"url": upstream},
                "adapters": [
                    {
                        "type": "upload_consumer",
                        "tools": ["read_text", "count_words"],
                        "file_path_argument": "path",
                    },
                    {
                        "type": "artifact_producer",
                        "tools": ["write_note", "draw_chart"],
                        "output_path_argument": "filename",
                    },
                ],
            },
            {
                "id": "shop",
                "mount_path": "/mcp/shop",
                "upstream": {"transport": "hosted"},
                "tools": {"directory": str(TOOLS)},
            },
        ],
    }
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path
