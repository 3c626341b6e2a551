"""The fronts that are compared, each its own process: no proxy, nginx, a bare relay, the adapter, FastMCP's proxy."""

from __future__ import annotations

import asyncio
import compileall
import json
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.load import Address, Client, LoadFailed
from tests.missing import Missing
from tests.nginx import nginx_argv

ROOT = Path(__file__).parents[2]
FASTMCP_VENV = ROOT / ".venvs" / "fastmcp"
ADAPTER = (sys.executable, "-m", "adapter")
START_TIMEOUT = 30.0
"""Seconds a front may take until it answers an initialize."""


class FrontUnavailable(Exception):
    """A front that cannot run here; the text says why."""


@dataclass(frozen=True)
class Running:
    """A front that answers. ``pid`` is the root of its process tree, None where there is no proxy."""

    address: Address
    pid: int | None


Start = Callable[[int, Path], AbstractAsyncContextManager[Running]]
"""Starts a front for the upstream at a port, with an empty directory of its own to write in."""


@dataclass(frozen=True)
class Front:
    """``share``: the part of a full measurement's calls it is given, as some take a thousand times longer."""

    name: str
    title: str
    start: Start
    share: float = 1.0


def end_tidily_when_terminated() -> None:
    """Make SIGTERM cancel the current task, so that every process it has started is stopped first."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


@asynccontextmanager
async def upstream_running(place: Path, *flags: str) -> AsyncIterator[int]:
    """The bench's upstream as its own process, with ``flags``; yields its port."""
    with (place / "upstream.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.upstream", *flags],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise FrontUnavailable(
                f"The upstream did not start: {(place / 'upstream.log').read_text()[-500:]}"
            )
        yield int(line)
    finally:
        process.stdout.close()
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Have it end, by force after ten seconds."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def compile_adapter() -> None:
    """Write the bytecode of the adapter, as an installation does.

    Where PYTHONDONTWRITEBYTECODE is set, every start would compile all modules: 0.15 s, and 1 MiB that stays.
    """
    compileall.compile_dir(ROOT / "adapter", quiet=2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def _proxy(argv: Sequence[str], address: Address, place: Path) -> AsyncIterator[Running]:
    log_path = place / "output.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        await _until_it_answers(process, address, log_path)
        yield Running(address, process.pid)
    finally:
        end(process)


async def _until_it_answers(process: subprocess.Popen[bytes], address: Address, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        try:
            client = await Client.connect(address)
        except OSError:
            await asyncio.sleep(0.05)  # there is no event to wait for: another process opens its port
            continue
        try:
            await client.initialize()
            await client.call()
            await client.delete()
        except LoadFailed as failure:
            raise FrontUnavailable(f"It does not answer a first session: {failure} {_tail(log)}") from failure
        finally:
            client.close()
        return
    state = "answered nothing" if process.poll() is None else f"ended with {process.returncode}"
    raise FrontUnavailable(f"It {state}. {_tail(log)}")


def _tail(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-3:])[-500:]


@asynccontextmanager
async def direct(upstream: int, _place: Path) -> AsyncIterator[Running]:
    """No proxy: the client talks to the upstream."""
    yield Running(Address(upstream, "/mcp"), None)


NGINX_CONFIG = """\
    keepalive_requests 1000000;
    upstream bench {{
        server 127.0.0.1:{upstream};
        keepalive 1024;
        keepalive_requests 1000000;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://bench;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 1h;
        }}
    }}
"""


def nginx_front_argv(place: Path, http: str, *, connections: int) -> list[str]:
    """See ``nginx_argv``. Raises FrontUnavailable."""
    try:
        return nginx_argv(place, http, connections=connections)
    except Missing as missing:
        raise FrontUnavailable(f"{missing}.") from None


@asynccontextmanager
async def nginx(upstream: int, place: Path) -> AsyncIterator[Running]:
    """One worker, nothing buffered, no log, connections to the upstream kept."""
    port = free_port()
    argv = nginx_front_argv(place, NGINX_CONFIG.format(upstream=upstream, port=port), connections=16384)
    async with _proxy(argv, Address(port, "/mcp"), place) as running:
        yield running


@asynccontextmanager
async def bare_relay(upstream: int, place: Path) -> AsyncIterator[Running]:
    """A relay of a page of Python; see its module."""
    port = free_port()
    argv = [sys.executable, "-m", "tests.bench.bare_relay", str(port), str(upstream)]
    async with _proxy(argv, Address(port, "/mcp"), place) as running:
        yield running


def adapter_settings(
    upstream: int, port: int, bearer: str, place: Path, adapters: Sequence[dict[str, object]] = ()
) -> dict[str, object]:
    """What a deployment has on: authentication, a line a call, state on disk, pings.

    With ``adapters`` of tools that take or produce files, also uploads of any size and downloads.
    """
    settings = _bare_settings(upstream, port, bearer, place)
    if adapters:
        settings["core"]["allow_artifacts_download"] = True
        settings["uploads"] = {"max_file_bytes": 1 << 40, "ttl_seconds": 3600}
        settings["artifacts"] = {"ttl_seconds": 3600}
        settings["servers"][0]["adapters"] = list(adapters)
    return settings


def _bare_settings(upstream: int, port: int, bearer: str, place: Path) -> dict[str, Any]:
    return {
        "core": {
            "host": "127.0.0.1",
            "port": port,
            "access_log": True,
            "auth": {"enabled": True, "token": bearer},
        },
        "storage": {"root": str(place / "data")},
        "state_persistence": {"type": "disk"},
        "servers": [
            {
                "id": "bench",
                "mount_path": "/mcp/bench",
                "upstream": {"transport": "streamable_http", "url": f"http://127.0.0.1:{upstream}/mcp"},
            }
        ],
    }


@asynccontextmanager
async def adapter(
    upstream: int,
    place: Path,
    adapters: Sequence[dict[str, object]] = (),
    core: Mapping[str, object] | None = None,
) -> AsyncIterator[Running]:
    """The adapter as it is deployed; see ``adapter_settings``. ``core`` are other settings of that section."""
    address = Address(free_port(), "/mcp/bench", secrets.token_hex(16))
    settings: dict[str, Any] = adapter_settings(upstream, address.port, address.bearer, place, adapters)
    settings["core"].update(core or {})
    async with adapter_with(settings, address, place) as running:
        yield running


@asynccontextmanager
async def adapter_with(
    settings: Mapping[str, object], address: Address, place: Path, command: Sequence[str] = ADAPTER
) -> AsyncIterator[Running]:
    """The adapter with any settings that let it answer at ``address``, run by ``command``."""
    config = place / "adapter.yaml"
    config.write_text(json.dumps(settings))  # JSON is YAML too
    argv = [*command, "serve", "--config", str(config)]
    async with _proxy(argv, address, place) as running:
        yield running


def fastmcp_python() -> Path:
    """The interpreter of FastMCP's own environment, which is made from PyPI when it is not there yet."""
    python = FASTMCP_VENV / "bin" / "python"
    if not (FASTMCP_VENV / ".ready").exists():
        quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for argv in (
            [sys.executable, "-m", "venv", str(FASTMCP_VENV)],
            [str(python), *quiet, "fastmcp>=4,<5", "uvloop", "httptools"],
        ):
            made = subprocess.run(argv, capture_output=True, text=True, timeout=300)
            if made.returncode:
                raise FrontUnavailable(f"FastMCP could not be installed: {made.stderr[-300:]}")
        (FASTMCP_VENV / ".ready").touch()
    return python


def _fastmcp(mode: str) -> Start:
    @asynccontextmanager
    async def start(upstream: int, place: Path) -> AsyncIterator[Running]:
        port = free_port()
        script = str(Path(__file__).with_name("fastmcp_proxy.py"))
        argv = [str(fastmcp_python()), script, f"http://127.0.0.1:{upstream}/mcp", str(port), mode]
        async with _proxy(argv, Address(port, "/mcp"), place) as running:
            yield running

    return start


FRONTS = {
    front.name: front
    for front in (
        Front("direct", "direct", direct),
        Front("nginx", "nginx", nginx),
        Front("bare", "bare relay in Python", bare_relay),
        Front("adapter", "adapter", adapter),
        Front("fastmcp", "FastMCP proxy", _fastmcp("fresh"), share=0.02),
        Front("fastmcp-shared", "FastMCP proxy, shared", _fastmcp("shared"), share=0.05),
    )
}
