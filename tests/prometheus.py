"""Prometheus and promtool as tests start them: on a free port of this machine, all files in one directory."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.edge.raw import RawClient
from tests.missing import Missing
from tests.ports import free_port

PATIENCE = 30.0

CONFIG = """\
global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: mcp-adapter
    authorization: {{credentials: "{token}"}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def program(name: str) -> str:
    """The path of prometheus or promtool. Raises Missing."""
    if (found := shutil.which(name)) is None:
        raise Missing(f"{name} is not installed (Debian's package is called prometheus)")
    return found


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool. Raises Missing."""
    return subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    port: int

    async def get(self, path: str, **query: str | float) -> Any:
        """Ask its HTTP API; the data of the answer. Raises AssertionError with the reason if it has an error."""
        async with RawClient(self.port) as client:
            _, body = await client.request("GET", path=f"/api/v1/{path}?{urlencode(query)}")
        answer = json.loads(body)
        assert answer["status"] == "success", (query, answer)
        return answer["data"]

    async def values(self, query: str) -> list[float]:
        """The values of a query now."""
        found = await self.get("query", query=query)
        return [float(each["value"][1]) for each in found["result"]]

    async def until(self, query: str) -> list[float]:
        """The values of a query as soon as there are any."""
        async with asyncio.timeout(PATIENCE):
            while not (found := await self.values(query)):
                await asyncio.sleep(0.1)
        return found


@asynccontextmanager
async def scraping(place: Path, port: int, rules: Path, token: str) -> AsyncIterator[Prometheus]:
    """A Prometheus that reads the metrics of ``port`` with an operator's token twice a second, until the block ends.

    Raises Missing.
    """
    config, own = place / "prometheus.yaml", free_port()
    config.write_text(CONFIG.format(rules=rules, port=port, token=token))
    process = await asyncio.create_subprocess_exec(
        program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={place / 'series'}",
        f"--web.listen-address=127.0.0.1:{own}",
        "--enable-feature=exemplar-storage",
        "--log.level=error",
        cwd=place,
    )
    try:
        await _ready(own)
        yield Prometheus(own)
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), PATIENCE)


async def _ready(port: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                async with RawClient(port) as client:
                    head, _ = await client.request("GET", path="/-/ready")
                if head.status == 200:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.1)
