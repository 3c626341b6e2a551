"""Python calls of an exchange, by road, as ``tests/edge/end_to_end/test_road_costs.py`` counts them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.bench.fronts import ROOT, FrontUnavailable

ROADS = "tests/edge/end_to_end/test_road_costs.py"


async def count_python_calls(place: Path) -> dict[str, int]:
    """Calls of functions of the adapter for one exchange, by road, in the order of the tests.

    The tests run in a process of their own. ``place`` is a directory for their report. One that finds too many calls
    fails, and its figure counts all the same. Raises FrontUnavailable.
    """
    report = place / "roads.xml"
    options = ["-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={report}"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", ROADS, *options),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if not (found := calls_in(report.read_bytes()) if report.exists() else {}):
        raise FrontUnavailable(f"No road was counted: {output[-300:].decode(errors='replace')}")
    return found


def calls_in(report: bytes) -> dict[str, int]:
    """The figures in a JUnit report: of each test the properties ``road`` and ``python_calls``."""
    roads: dict[str, int] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        noted = {each.get("name"): each.get("value") for each in case.iter("property")}
        road, calls = noted.get("road"), noted.get("python_calls")
        if road is not None and calls is not None:
            roads[road] = int(calls)
    return roads
