"""Starts that fail, as an orchestrator and its operator see them: real processes, and one that heals."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.extras import install_line
from tests.e2e.processes import Running, listens, start
from tests.e2e.replicas import redis_argv
from tests.ports import free_port

pytestmark = pytest.mark.e2e

PATIENCE = 60.0
"""Seconds for anything that a busy machine may take its time for."""


@dataclass
class Retrying:
    """``mcp-adapter serve`` that stays up, with a settings file that can be rewritten."""

    place: Path
    port: int
    running: Running

    def write(self, **sections: Any) -> None:
        """Other settings, for the next start."""
        (self.place / "config.yaml").write_text(json.dumps(settings(self.place, self.port, **sections)))

    def try_again(self) -> None:
        """Start at once, instead of after the wait."""
        self.running.process.send_signal(signal.SIGHUP)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The log so far."""
        return [json.loads(line) for line in self.running.log.read_text().splitlines() if line[:1] == "{"]

    async def ask(self, path: str) -> tuple[int, Any]:
        """The answer's status and body. Raises ClientConnectionError between two starts."""
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.json()

    async def until(self, path: str, there: Callable[[int, Any], bool]) -> Any:
        """The first body of which ``there`` is true. The process must not end meanwhile."""
        async with asyncio.timeout(PATIENCE):
            while True:
                assert self.running.process.returncode is None, self.running.log.read_text()[-2000:]
                try:
                    status, body = await self.ask(path)
                except (aiohttp.ClientError, ConnectionError):
                    status, body = 0, None
                if there(status, body):
                    return body
                await asyncio.sleep(0.05)

    async def refused_for(self, setting: str, sentence: str) -> None:
        """Be alive, not ready, and say why in the log and in /healthz."""

        def told(status: int, body: Any) -> bool:
            found = body.get("obstacles", []) if status == 503 else []
            return any(each["setting"] == setting and sentence in each["why"] for each in found)

        await self.until("/healthz", told)
        assert (await self.ask("/livez"))[0] == 200 and (await self.ask("/readyz"))[0] == 503
        assert [line for line in self.lines if line.get("setting") == setting and sentence in line["why"]]


def settings(
    place: Path, port: int, *, core: dict[str, Any] | None = None, **sections: Any
) -> dict[str, Any]:
    consumer = {"type": "upload_consumer", "tools": ["a"], "file_path_argument": "b"}
    server = {"id": "one", "upstream": {"url": "http://127.0.0.1:9/mcp"}, "adapters": [consumer]}
    common = {"port": port, "upstream_ping": {"enabled": False}, "shutdown_grace_seconds": 1}
    return {
        "core": {**common, **(core or {})},
        "storage": {"root": str(place / "data")},
        "servers": [server],
        **sections,
    }


@asynccontextmanager
async def retrying(place: Path, **sections: Any) -> AsyncIterator[Retrying]:
    """The process, from its first start on. It lacks the library of telemetry, and root's way past access rights."""
    shadow = place / "shadow"
    shadow.mkdir()
    (shadow / "opentelemetry.py").write_text("raise ModuleNotFoundError('No module', name='opentelemetry')\n")
    port = free_port()
    (place / "config.yaml").write_text(json.dumps(settings(place, port, **sections)))
    # As an ordinary user: who owns all files is asked for no right by the system.
    plain = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    argv = [*(plain if os.geteuid() == 0 else []), sys.executable, "-m", "adapter", "serve"]
    environment = {"PYTHONPATH": str(shadow), "MCP_ADAPTER_RETRY_START": "1"}
    async with await start(
        [*argv, "--config", place / "config.yaml"], place / "adapter.log", environment
    ) as running:
        yield Retrying(place, port, running)


async def test_a_process_says_what_is_missing_until_it_is_there(tmp_path: Path) -> None:
    """A variable, a library, a volume and a store: each is named in the first line and in /healthz; then it serves."""
    secret = {"enabled": True, "token": "${SECRET_OF_NOBODY}"}
    async with retrying(tmp_path, core={"auth": secret}) as one:
        await one.refused_for("core.auth.token", "SECRET_OF_NOBODY is not set")
        assert one.lines[0]["setting"] == "core.auth.token"
        assert one.lines[1]["event"] == "the start failed; trying again"

        one.write(telemetry={"enabled": True, "endpoint": "http://127.0.0.1:9"})
        one.try_again()
        await one.refused_for("telemetry.enabled", install_line("telemetry"))

        (tmp_path / "data").mkdir(exist_ok=True)
        os.chown(tmp_path / "data", 65534 if os.geteuid() == 0 else -1, -1)
        (tmp_path / "data").chmod(0o555)
        one.write()
        one.try_again()
        await one.refused_for("storage.root", f"{tmp_path}/data is not writable for the user")

        (tmp_path / "data").chmod(0o777)
        port = free_port()
        argv = redis_argv(port, tmp_path)
        redis = {"url": f"redis://127.0.0.1:{port}/0"}
        one.write(state_persistence={"type": "redis", "redis": redis})
        one.try_again()
        await one.refused_for("state_persistence", "Redis")
        # Nobody touches the adapter when the store has come back.
        async with await start(argv, tmp_path / "redis.log") as store:
            await listens(port, store)
            await one.until("/readyz", lambda status, _: status == 200)
            assert (await one.ask("/healthz"))[1]["persistence"] == {"type": "redis", "status": "ok"}
            one.running.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                assert await one.running.process.wait() == 0


async def test_workers_tell_their_supervisor_why_they_cannot_serve(tmp_path: Path) -> None:
    """With workers the same is in /healthz, for what the supervisor finds and for what only a worker does."""
    missing = {"enabled": True, "endpoint": "http://127.0.0.1:9"}
    async with retrying(tmp_path, core={"workers": 2}, telemetry=missing) as one:
        await one.refused_for("telemetry.enabled", install_line("telemetry"))
        assert "Traceback" not in one.running.log.read_text()
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        (tmp_path / "data").touch()
        one.write(core={"workers": 2})
        one.try_again()
        await one.refused_for("storage.root", "remove the file that is in its place")
        (tmp_path / "data").unlink()
        one.try_again()
        await one.until("/readyz", lambda status, _: status == 200 and _serving(one) == {1, 2})


def _serving(one: Retrying) -> set[int]:
    """The numbers of the workers that serve."""
    return {line["worker"] for line in one.lines if line["event"] == "serving"}
