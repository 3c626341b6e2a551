"""Redis servers for tests: one, or three that are a cluster. Each has a folder of its own and ends with its tests."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from adapter.state.redis.address import RedisAddress, RedisServer
from adapter.state.redis.dialer import Dialer
from tests.hosted.databases import PASSWORD, START_TIMEOUT, Server, folder_for, program, running
from tests.missing import Missing
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
def single(*options: str, tls: bool = False) -> Iterator[Server]:
    """A server with a password that a URL must encode, and an append-only file that is synced with every write."""
    with folder_for(None) as folder:
        port = free_port()
        argv = _command(port, folder, "--requirepass", PASSWORD, *options)
        if tls:
            argv += ["--port", "0", "--tls-port", str(port)]
        server = Server("redis", argv, folder, port, "")
        with running(server):
            yield server


def _command(port: int, folder: Path, *options: str) -> list[str]:
    argv = [str(server_program()), "--port", str(port), "--bind", HOST, "--save", "", "--dir", str(folder)]
    return [*argv, "--appendonly", "yes", "--appendfsync", "always", *options]


@contextlib.contextmanager
def sentinel(service: str, primary: Server) -> Iterator[Server]:
    """A Sentinel that decides alone about a primary."""
    with folder_for(None) as folder:
        port = free_port()
        file = folder / "sentinel.conf"
        file.write_text(
            f"port {port}\nbind {HOST}\nsentinel monitor {service} {HOST} {primary.port} 1\n"
            f'sentinel auth-pass {service} "{PASSWORD}"\n'
            f"sentinel down-after-milliseconds {service} 1000\nsentinel failover-timeout {service} 5000\n"
        )
        with running(
            Server("redis", [str(server_program()), str(file), "--sentinel"], folder, port, "")
        ) as server:
            yield server


@contextlib.contextmanager
def cluster() -> Iterator[list[Server]]:
    """A cluster of three primaries without replicas, with all slots served."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(cluster_node()) for _ in range(3)]
        arrange("create", *(address(each) for each in servers), "--cluster-yes")
        for server in servers:
            until(server, "cluster_state:ok", "CLUSTER", "INFO")
        yield servers


@contextlib.contextmanager
def cluster_node() -> Iterator[Server]:
    """A server that may join a cluster."""
    with folder_for(None) as folder:
        port, bus = free_port(), free_port()
        options = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "2000")
        with running(Server("redis", _command(port, folder, *options), folder, port, "")) as server:
            yield server


def arrange(*words: str) -> None:
    """Run a command of the command line on a cluster as a whole."""
    argv = [str(client_program()), "--cluster", *words]
    subprocess.run(argv, check=True, capture_output=True, timeout=START_TIMEOUT)


def address(server: Server) -> str:
    return f"{HOST}:{server.port}"


def until(server: Server, text: str, *words: str, password: str | None = None) -> None:
    """Repeat a command until its answer has this text in it."""
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        # A server that changes its part in a failover closes its connections.
        with contextlib.suppress(subprocess.CalledProcessError):
            if text in command(server, *words, password=password):
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{words} never has {text} in its answer")
        time.sleep(0.05)


def until_copied(primary: Server, replica: Server) -> None:
    """Wait until a replica has all that its primary has written so far."""
    written = _offset(primary, "master_repl_offset")
    deadline = time.monotonic() + START_TIMEOUT
    while _offset(replica, "slave_repl_offset") < written:
        if time.monotonic() > deadline:
            raise RuntimeError("the replica does not follow its primary")
        time.sleep(0.05)


def _offset(server: Server, name: str) -> int:
    """The position in the log of a primary that the server tells under this name."""
    lines = command(server, "INFO", "replication", password=None).split()
    return next(int(line.partition(":")[2]) for line in lines if line.startswith(name))


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
