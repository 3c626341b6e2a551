"""The containers of a rendered pod as processes of this machine, with its ports and folders."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.e2e.charts import Rendered, rendered
from tests.e2e.processes import START_TIMEOUT, Running, listens, start


def local(*stack: str, place: Path, port: int, upstream: str, sets: Sequence[str] = ()) -> Rendered:
    """A shape of one server whose settings have this machine's ports and folders, and that is else as it is shipped."""
    (server,) = yaml.safe_load(rendered(*stack).settings_text())["servers"]
    server["upstream"]["url"] = upstream
    ours = [
        f"config.core.port={port}",
        f"config.storage.root={place}/files",
        f"config.servers={json.dumps([server])}",
        f"config.state_persistence.disk.local_path={place}/state/adapter.sqlite3",
    ]
    return rendered(*stack, sets=[*ours, *sets])


def settings_file(place: Path, release: Rendered) -> Path:
    """The file that the pod mounts, in ``place``."""
    path = place / "config.yaml"
    path.write_text(release.settings_text())
    return path


@asynccontextmanager
async def serving(release: Rendered, place: Path, port: int) -> AsyncIterator[Running]:
    """The adapter as the container starts it, from the moment at which its readiness probe succeeds."""
    (serve, option, _) = release.container()["args"]
    command = [sys.executable, "-m", "adapter", serve, option, settings_file(place, release)]
    async with await start(command, place / "adapter.log", release.variables()) as running:
        await listens(port, running)
        await ready(release.container()["readinessProbe"]["httpGet"], port, running)
        yield running


async def ready(asked: Mapping[str, Any], port: int, running: Running) -> None:
    """Return when the probe succeeds. Raises TimeoutError with the log of the adapter."""
    url = f"http://127.0.0.1:{port}{asked['path']}"
    try:
        async with asyncio.timeout(START_TIMEOUT), aiohttp.ClientSession() as http:
            while True:
                async with http.get(url, headers=fields(asked)) as answer:
                    if answer.status == 200:
                        return
                await asyncio.sleep(0.05)
    except TimeoutError as late:
        raise TimeoutError(running.log.read_text()[-2000:]) from late


def fields(asked: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a probe."""
    return {field["name"]: field["value"] for field in asked.get("httpHeaders", ())}


def moved(arguments: Sequence[str], places: Mapping[str, object]) -> list[str]:
    """Arguments of a container with this machine's ports and folders in place of its own."""
    found = list(arguments)
    for there, here in places.items():
        found = [each.replace(there, str(here)) for each in found]
    return found
