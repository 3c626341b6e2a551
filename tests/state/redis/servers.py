"""Redis servers for tests: one, or three that are a cluster. Each has a folder of its own and ends with its tests."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from adapter.state.redis.address import RedisAddress, RedisServer
from adapter.state.redis.dialer import Dialer
from tests.hosted.databases import PASSWORD, START_TIMEOUT, Missing, Server, folder_for, program, running
from tests.ports import free_port

HOST = "127.0.0.1"


def server_program() -> Path:
    """Redis or Valkey. Raises Missing."""
    try:
        return program("redis-server")
    except Missing:
        return program("valkey-server")


def client_program() -> Path:
    """The command line of Redis or Valkey. Raises Missing."""
    try:
        return program("redis-cli")
    except Missing:
        return program("valkey-cli")


@contextlib.contextmanager
def single(*options: str) -> Iterator[Server]:
    """A server with a password that a URL must encode, and an append-only file that is synced with every write."""
    with folder_for(None) as folder:
        port = free_port()
        server = Server(
            "redis", _command(port, folder, "--requirepass", PASSWORD, *options), folder, port, ""
        )
        with running(server):
            yield server


def _command(port: int, folder: Path, *options: str) -> list[str]:
    argv = [str(server_program()), "--port", str(port), "--bind", HOST, "--save", "", "--dir", str(folder)]
    return [*argv, "--appendonly", "yes", "--appendfsync", "always", *options]


@contextlib.contextmanager
def cluster(nodes: int = 3) -> Iterator[list[Server]]:
    """A cluster of primaries without replicas, with all slots served."""
    with contextlib.ExitStack() as stack:
        servers = []
        for _ in range(nodes):
            folder = stack.enter_context(folder_for(None))
            port, bus = free_port(), free_port()
            options = (
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                str(bus),
                "--cluster-node-timeout",
                "2000",
            )
            server = Server("redis", _command(port, folder, *options), folder, port, "")
            servers.append(stack.enter_context(running(server)))
        create = [str(client_program()), "--cluster", "create", *(f"{HOST}:{each.port}" for each in servers)]
        subprocess.run([*create, "--cluster-yes"], check=True, capture_output=True, timeout=START_TIMEOUT)
        for server in servers:
            _until_served(server)
        yield servers


def _until_served(server: Server) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while "cluster_state:ok" not in command(server, "CLUSTER", "INFO", password=None):
        if time.monotonic() > deadline:
            raise RuntimeError("the cluster does not come up")
        time.sleep(0.05)


def command(server: Server, *words: str, password: str | None = PASSWORD) -> str:
    """What the command line of Redis prints for a command."""
    login = [] if password is None else ["--no-auth-warning", "-a", password]
    argv = [str(client_program()), "-h", HOST, "-p", str(server.port), *login, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=START_TIMEOUT).stdout


def dialer(servers: Sequence[Server], *, timeout: float = 5.0) -> Dialer:
    """Opens connections to a single server, or to a cluster by one of its nodes."""
    endpoints = (RedisServer(HOST, servers[0].port),)
    if len(servers) > 1:
        return Dialer(RedisAddress(endpoints, cluster=True), timeout)
    return Dialer(RedisAddress(endpoints, password=PASSWORD), timeout)
