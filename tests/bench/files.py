"""What moving files costs, beside what it costs at the least: uploads, downloads, and calls that take a copy.

In every round each kind of transfer goes through each front before the next kind begins. The client is this
process, which is not counted; its files lie in the page cache.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from tests.bench import fronts
from tests.bench.figures import Figures
from tests.bench.fronts import ROOT, FrontUnavailable, Running
from tests.bench.limits import nginx_with_files
from tests.bench.load import Address, Client, LoadFailed
from tests.bench.process import cpu_seconds, forget_peak, peak_rss_bytes, rss_bytes, tree
from tests.bench.scenarios import SETTLE
from tests.bench.transfers import Source, download, upload

MIB = 1024 * 1024
GIB = 1024 * MIB

ONE, MANY, DOWN, LENT = KINDS = ("upload", "uploads at once", "download", "copy for a call")
ADAPTER, NGINX, COPY, COPY_HASH = "adapter", "nginx", "copy", "copy and hash"
"""Fronts. A copy does the least there is to do for a call, one with its hash for an upload."""

CPU, SPEED, MEMORY = "CPU s/GiB", "MiB/s", "peak RSS above rest, MiB"

Moved = dict[str, float]
"""What one transfer was found to cost, by measure."""

ADAPTERS: tuple[dict[str, object], ...] = (
    {"type": "upload_consumer", "tools": ["take"], "file_path_argument": "path"},
    {"type": "artifact_producer", "tools": ["make"], "output_path_argument": "output"},
)


@dataclass(frozen=True)
class FileExtent:
    """``size`` of a large file in bytes; ``at_once`` uploads of it together."""

    rounds: int
    size: int
    at_once: int


FULL = FileExtent(rounds=5, size=256 * MIB, at_once=16)
QUICK = FileExtent(rounds=1, size=4 * MIB, at_once=2)
SMALL = 4096
"""Bytes of the file after which memory is at rest."""
MANY_ROUNDS = 2
"""Uploads at once are four gibibytes for each front: in these rounds only, to spare the disk."""


@dataclass(frozen=True)
class Subject:
    """A front that runs, and its RSS at rest in bytes: when it had moved one small file and nothing else."""

    name: str
    running: Running
    rest: int

    @classmethod
    async def rested(cls, name: str, running: Running, small: Source) -> Subject:
        async with _door(name, running) as (address, fields):
            await _all([lambda: upload(address, small, *fields)])
        await asyncio.sleep(SETTLE)
        assert running.pid is not None
        return cls(name, running, rss_bytes(tree(running.pid)))


async def measure_files(
    extent: FileExtent,
    upstream: int,
    place: Path,
    figures: Figures,
    missing: dict[str, str],
    progress: Callable[[str], None],
    *,
    beside_nginx: bool = True,
) -> None:
    """Add all of it to ``figures``, by kind. ``place`` is an empty directory on the disk that counts. Raises
    FrontUnavailable, LoadFailed.
    """
    room = {name: place / name for name in ("adapter", "nginx", "sources")}
    for directory in room.values():
        directory.mkdir()
    source = Source.make(room["sources"] / "large.bin", extent.size)
    small = Source.make(room["sources"] / "small.bin", SMALL)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(fronts.adapter(upstream, room["adapter"], ADAPTERS))
        adapter = await Subject.rested(ADAPTER, running, small)
        subjects = [adapter]
        if beside_nginx:
            try:
                bare = await stack.enter_async_context(nginx_with_files(room["nginx"], room["sources"]))
            except FrontUnavailable as reason:
                missing["files beside nginx"] = str(reason)
            else:
                subjects.append(await Subject.rested(NGINX, bare, small))
        for number in range(1, extent.rounds + 1):
            progress(f"files, round {number} of {extent.rounds}")
            for subject in subjects:
                figures.add_all(ONE, subject.name, await _moved(subject, [source]))
            figures.add_all(ONE, COPY_HASH, _copied("copy-hash", source))
            for subject in subjects if number <= MANY_ROUNDS else ():
                figures.add_all(MANY, subject.name, await _moved(subject, [source] * extent.at_once))
            for subject in subjects:
                figures.add_all(DOWN, subject.name, await _fetched(subject, source))
            copied = _copied("copy", source)
            figures.add_all(DOWN, COPY, copied)
            figures.add_all(LENT, ADAPTER, await _lent(adapter, source))
            figures.add_all(LENT, COPY, copied)


# --- through the fronts -------------------------------------------------------------------------------------------


async def _moved(subject: Subject, sources: list[Source]) -> Moved:
    """Upload all of them at once."""
    async with _door(subject.name, subject.running) as (address, fields):
        work = [partial(upload, address, source, *fields) for source in sources]
        return await _counted(subject, sum(source.size for source in sources), _all(work))


async def _fetched(subject: Subject, source: Source) -> Moved:
    """Download the file from nginx; from the adapter one of its size that a tool has just made."""
    port = subject.running.address.port
    if subject.name == NGINX:
        address = Address(port, f"/files/{source.path.name}")
        return await _counted(subject, source.size, _all([partial(_download_of, address, source.size)]))
    async with _session(subject.running) as client:
        answer = await client.call("make", output="large.bin", size=source.size)
        url = urlsplit(orjson.loads(answer.body)["result"]["_meta"]["artifact"]["download_url"])
        address = Address(port, f"{url.path}?{url.query}")
        return await _counted(subject, source.size, _all([partial(_download_of, address, source.size)]))


def _download_of(address: Address, size: int) -> None:
    brought = download(address)
    if brought != size:
        raise LoadFailed(f"A download brought {brought} of {size} bytes.")


async def _lent(subject: Subject, source: Source) -> Moved:
    """Call the tool that takes the file: it gets a copy, or a file of the same blocks where the disk can have them."""
    async with _session(subject.running) as client:
        handle = await _handle(subject.running, client, source)
        return await _counted(subject, source.size, client.call("take", path=handle))


async def _counted(subject: Subject, size: int, work: Awaitable[object]) -> Moved:
    """Do the work, on ``size`` bytes in all."""
    assert subject.running.pid is not None
    pids = tree(subject.running.pid)
    await asyncio.sleep(SETTLE)
    before = cpu_seconds(pids)
    forget_peak(pids)
    begun = time.perf_counter()
    await work
    took = time.perf_counter() - begun
    await asyncio.sleep(SETTLE)
    spent = cpu_seconds(pids) - before
    above = max(0, peak_rss_bytes(pids) - subject.rest) / MIB
    return {CPU: spent * GIB / size, SPEED: size / MIB / took, MEMORY: above}


async def _all(work: Sequence[Callable[[], object]]) -> list[object]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(len(work)) as threads:
        return await asyncio.gather(*(loop.run_in_executor(threads, each) for each in work))


@asynccontextmanager
async def _door(name: str, front: Running) -> AsyncIterator[tuple[Address, list[str]]]:
    """Where to upload to, with which fields. The adapter's uploads are its session's, and gone with it."""
    if name == NGINX:
        yield front.address, []
        return
    async with _session(front) as client:
        yield _upload_to(front), _claim(front, client)


def _upload_to(front: Running) -> Address:
    return Address(front.address.port, "/upload/bench")


def _claim(front: Running, client: Client) -> list[str]:
    return [f"Authorization: Bearer {front.address.bearer}", f"Mcp-Session-Id: {client.session}"]


@asynccontextmanager
async def _session(front: Running) -> AsyncIterator[Client]:
    client = await Client.connect(front.address)
    try:
        await client.initialize()
        yield client
        await client.delete()
    finally:
        client.close()


async def _handle(front: Running, client: Client, source: Source) -> str:
    fields = _claim(front, client)
    answer = orjson.loads(await asyncio.to_thread(upload, _upload_to(front), source, *fields))
    if answer["upload"]["sha256"] != source.sha256:
        raise LoadFailed("An upload was stored with another digest than it has.")
    handle: str = answer["upload_handle"]
    return handle


# --- by themselves ------------------------------------------------------------------------------------------------


def _copied(how: str, source: Source) -> Moved:
    target = source.path.with_suffix(".copy")
    took = _limit(how, source.path, target)
    target.unlink()
    return {CPU: took["cpu"] * GIB / source.size, SPEED: source.size / MIB / took["wall"]}


def _limit(*arguments: object) -> dict[str, float]:
    argv = [sys.executable, "-m", "tests.bench.limits", *map(str, arguments)]
    ran = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)
    if ran.returncode:
        raise FrontUnavailable(f"The limits could not be measured: {ran.stderr[-300:]}")
    found: dict[str, float] = orjson.loads(ran.stdout)
    return found
