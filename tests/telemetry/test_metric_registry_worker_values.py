"""Numbers of several processes, in one folder."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

PROGRAM = """
import os, signal, sys
from pathlib import Path
from adapter.telemetry.metric_registry import keep_in_files, values_of_this_process

folder, seat, number = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
keep_in_files(folder, seat)
from adapter.rules.metrics.catalogue import BREAKER_STATE, HTTP_DURATION, HTTP_IN_FLIGHT, HTTP_REQUESTS
from adapter.telemetry.metric_registry import scraped
from adapter.telemetry.metric_registry import MetricRegistry

worker = values_of_this_process()
registry = MetricRegistry(gather=worker.gathered)
for _ in range(number):
    registry.count(HTTP_REQUESTS, "shop", "GET", "mcp", "2xx")
    registry.observe_all(HTTP_DURATION, [0.5], "shop", "GET", "mcp", "2xx", traces=["ab" * 16])
registry.put(HTTP_IN_FLIGHT, number, "mcp")
registry.put(BREAKER_STATE, seat, "shop")
assert worker.began > 0
sys.stdout.write(scraped(registry, "").body.decode())
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


FULL_DISK = """
import resource, sys
from pathlib import Path
from adapter.telemetry.metric_registry import values_of_this_process
from adapter.workers.worker import _keep_numbers

folder = Path(sys.argv[1])
_keep_numbers(str(folder), 0)
assert all(each.stat().st_blocks * 512 >= each.stat().st_size > 0 for each in folder.glob("*.db"))
assert len(list(folder.glob("*.db"))) == 4
before = values_of_this_process()
assert before.seat == 0 and not list(before.gathered())
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
_keep_numbers(str(folder), 1)
after = values_of_this_process()
assert after.seat == 1 and not list(after.gathered()) and len(list(folder.iterdir())) == 4
"""


GROWING = """
import resource, sys
from pathlib import Path
from adapter.rules.metrics.catalogue import HTTP_DURATION, HTTP_REQUESTS
from adapter.telemetry.metric_registry import MetricRegistry
from adapter.telemetry.metric_registry import RESERVED, keep_in_files, values_of_this_process

folder = Path(sys.argv[1])
keep_in_files(folder, 0)
file, reserved = folder / "histogram_0.db", RESERVED["histogram"]
worker = values_of_this_process()
registry = MetricRegistry(gather=worker.gathered, has_room=worker.has_room)

def count(first, last):
    for number in range(first, last):
        registry.count(HTTP_REQUESTS, str(number), "GET", "mcp", "2xx")
        registry.observe(HTTP_DURATION, 0.5, str(number), "GET", "mcp", "2xx")

count(0, 1500)
assert file.stat().st_size == 2 * reserved == file.stat().st_blocks * 512
resource.setrlimit(resource.RLIMIT_FSIZE, (2 * reserved + 4096, 2 * reserved + 4096))
count(1500, 4000)
count(0, 4000)
assert file.stat().st_size == 2 * reserved
shown = {each.labels["server_id"]: each.value for family in registry.collect() for each in family.samples
         if each.name == "adapter_http_request_duration_seconds_count"}
assert 1500 < len(shown) < 4000 and set(shown.values()) == {2.0}, len(shown)
"""


async def counted(folder: Path, seat: int, number: int) -> dict[str, float]:
    """What a worker shows that counts up to that number and is killed then."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(folder), str(seat), str(number)), stdout=asyncio.subprocess.PIPE
    )
    text, _ = await process.communicate()
    families = text_string_to_metric_families(text.decode())
    return {
        each.name: each.value for family in families for each in family.samples if "le" not in each.labels
    }


async def test_counters_go_on_after_a_worker_was_killed(tmp_path: Path) -> None:
    """Also in the seat of the killed one, and no file is left over; gauges are summed, or the largest is shown."""
    (tmp_path / "began").touch()
    first = await counted(tmp_path, 0, 3)
    assert first["adapter_http_requests_total"] == 3
    second = await counted(tmp_path, 1, 4)
    assert second["adapter_http_requests_total"] == 7
    files = sorted(tmp_path.iterdir())
    third = await counted(tmp_path, 0, 5)
    assert third["adapter_http_requests_total"] == 12
    assert third["adapter_http_request_duration_seconds_count"] == 12
    assert third["adapter_http_request_duration_seconds_sum"] == 6
    assert third["adapter_http_requests_in_flight"] == 5 + 4
    assert third["adapter_upstream_circuit_breaker_state"] == 1
    assert sorted(tmp_path.iterdir()) == files


async def test_a_full_disk_stops_no_worker(tmp_path: Path) -> None:
    """The numbers have their room before they are counted; where there is none, a worker serves without them."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FULL_DISK, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    text, _ = await process.communicate()
    assert process.returncode == 0, text
    assert b"scrapes lack the metrics of this worker" in text


async def test_a_disk_that_fills_up_stops_no_worker(tmp_path: Path) -> None:
    """The files grow while there is room for it; then new series are not counted, and the others go on."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", GROWING, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    text, _ = await process.communicate()
    assert process.returncode == 0, text.decode()
