"""Real database servers for tests: each starts on a free port in a folder of its own, can be restarted, and ends
with the tests that asked for it."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests import reaper
from tests.missing import Missing
from tests.ports import free_port

START_TIMEOUT = 60.0
"""Seconds until a server that was started accepts a connection."""

STOP_TIMEOUT = 15.0
PASSWORD = "it's p@ss/word"  # needs quoting in a URL and in SQL
URL_PASSWORD = "it%27s%20p%40ss%2Fword"


def program(name: str, *, patterns: tuple[str, ...] = ()) -> Path:
    """Raises Missing."""
    if found := shutil.which(name):
        return Path(found)
    for pattern in patterns:
        for path in sorted(Path("/").glob(pattern), reverse=True):
            return path
    raise Missing(f"{name} is not installed")


@dataclass
class Server:
    """One server process, listening on 127.0.0.1. ``url`` is what a connector of its ``kind`` is given; ``ready`` is
    a command that succeeds when the server accepts clients, for a server that listens earlier than that."""

    kind: str
    argv: list[str]
    folder: Path
    port: int
    url: str
    stop_signal: signal.Signals = signal.SIGTERM
    user: str | None = None
    ready: list[str] | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Returns when it accepts connections. Raises RuntimeError, with what it said, when it ends before."""
        log = self.folder / "server.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self.argv,
                cwd=self.folder,
                stdout=output,
                stderr=output,
                user=self.user,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._answers():
                return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"{self.argv[0]} does not start: {log.read_text(errors='replace')[-2000:]}")

    def _answers(self) -> bool:
        if self.ready is not None:
            return subprocess.run(self.ready, capture_output=True).returncode == 0
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(self.stop_signal)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal. A process that was stopped by one runs again to end."""
        assert self._process is not None
        self._process.send_signal(number)

    def restart(self) -> None:
        self.stop()
        self.start()


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def folder_for(user: str | None) -> Iterator[Path]:
    """A folder of ``user``; not below pytest's, which only its owner may enter."""
    with tempfile.TemporaryDirectory(dir=reaper.folder(), ignore_cleanup_errors=True) as name:
        if user is not None:
            account = pwd.getpwnam(user)
            os.chown(name, account.pw_uid, account.pw_gid)
        yield Path(name)


@contextlib.contextmanager
def postgres() -> Iterator[Server]:
    """PostgreSQL, which refuses to run as root and so runs as the account of its package then."""
    postgres = program("postgres", patterns=("usr/lib/postgresql/*/bin/postgres",)).resolve()
    user = "postgres" if os.geteuid() == 0 else None
    with folder_for(user) as folder:
        (secret := folder / "secret").write_text(PASSWORD)
        secret.chmod(0o644)
        data = folder / "data"
        cluster = ["-D", str(data), "-U", "app", f"--pwfile={secret}", "-A", "scram-sha-256", "--no-sync"]
        initdb = [str(postgres.with_name("initdb")), *cluster, "-E", "UTF8", "--locale=C"]
        subprocess.run(initdb, check=True, capture_output=True, user=user, cwd=folder)
        port = free_port()
        argv = [str(postgres), "-D", str(data), "-p", str(port), "-k", str(folder), "-F", "-h", "127.0.0.1"]
        url = f"postgres://app:{URL_PASSWORD}@127.0.0.1:{port}/postgres"
        ready = [str(postgres.with_name("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(port)]
        # SIGINT: its "fast" shutdown, which does not wait for clients to leave.
        yield from _served(Server("postgres", argv, folder, port, url, signal.SIGINT, user, ready))


@contextlib.contextmanager
def mariadb() -> Iterator[Server]:
    mariadbd = program("mariadbd", patterns=("usr/sbin/mariadbd",))
    with folder_for(None) as folder:
        data = folder / "data"
        me = getpass.getuser()
        install = [str(program("mariadb-install-db")), "--no-defaults", f"--datadir={data}", f"--user={me}"]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(install, check=True, capture_output=True)
        quoted = PASSWORD.replace("'", "''")
        (setup := folder / "setup.sql").write_text(
            "CREATE DATABASE IF NOT EXISTS app CHARACTER SET utf8mb4;\n"
            f"CREATE USER IF NOT EXISTS 'app'@'%' IDENTIFIED BY '{quoted}';\n"
            "GRANT ALL ON app.* TO 'app'@'%';\n"
        )
        port = free_port()
        argv = [str(mariadbd), "--no-defaults", f"--datadir={data}", f"--user={me}", f"--port={port}"]
        argv += ["--bind-address=127.0.0.1", f"--socket={folder}/sock", f"--init-file={setup}"]
        argv += ["--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0"]
        url = f"mysql://app:{URL_PASSWORD}@127.0.0.1:{port}/app"
        yield from _served(Server("mysql", argv, folder, port, url))


@contextlib.contextmanager
def redis() -> Iterator[Server]:
    with folder_for(None) as folder:
        port = free_port()
        argv = [str(program("redis-server")), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        argv += ["--requirepass", PASSWORD, "--dir", str(folder)]
        url = f"redis://:{URL_PASSWORD}@127.0.0.1:{port}/0"
        yield from _served(Server("redis", argv, folder, port, url))


@contextlib.contextmanager
def mongodb() -> Iterator[Server]:
    """Not MongoDB, which no registry of packages has: another's server that speaks its protocol over SQLite."""
    with folder_for(None) as folder:
        port = free_port()
        argv = [str(Path(sys.executable).with_name("nx-27017")), "--db", "memory", "--host", "127.0.0.1"]
        # By default both are the same for everybody on the machine: one run would keep the others from starting.
        argv += ["-p", str(port), "--pid-file", f"{folder}/pid", "--log-file", f"{folder}/log"]
        yield from _served(Server("mongodb", argv, folder, port, f"mongodb://127.0.0.1:{port}/app"))


def _served(server: Server) -> Iterator[Server]:
    with running(server):
        yield server
