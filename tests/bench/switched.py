"""What people switch on: calls, sessions and small files with each feature alone and with all, beside none of them.

All calls are answered with ``"isError":false``, as the official Python SDK does.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

import orjson

from tests.bench.files import ADAPTERS
from tests.bench.fronts import FRONTS, Running, adapter
from tests.bench.load import Client, LoadFailed
from tests.bench.results import BARE, BASELINE, ENVOY, SUBJECT
from tests.bench.run import Run, progress
from tests.bench.scenarios import Observed, Scenario, measure, sessions

PART = "switched"
AUDIT, METRICS, PINS, FILES, WORKERS, ALL = "audit", "metrics", "pins block", "files", "2 workers", "all on"

_AUDITED = {"audit": {"file": "audit.log"}}
_PINNED = {"tool_definition_pinning": {"mode": "block"}}
_MEASURED = {"prometheus": {"enabled": True}}
SWITCHES: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    SUBJECT: {},
    AUDIT: {"core": _AUDITED},
    METRICS: {"telemetry": _MEASURED},
    PINS: {"core": _PINNED},
    FILES: {},
    WORKERS: {"core": {"workers": 2}},
    ALL: {"core": {**_AUDITED, **_PINNED}, "telemetry": _MEASURED},
}
"""Settings by the name of what is on."""
WITH_FILES = (FILES, ALL)

UNIT = ", CPU µs"
CALL, SESSION = f"call{UNIT}", f"SDK session{UNIT}"
UP, DOWN = f"4 KiB up and the call that takes them{UNIT}", f"call that gives 4 KiB and the download{UNIT}"
SMALL = bytes(4096)


async def _calls(client: Client, count: int, observed: Observed) -> None:
    for _ in range(count):
        await client.call("reply", a=1, b=2)


async def _up(client: Client, count: int, observed: Observed) -> None:
    for _ in range(count):
        taken = await client.call("take", path=await client.upload(SMALL))
        if orjson.loads(taken.body)["result"]["content"][0]["text"] != str(len(SMALL)):
            raise LoadFailed(f"The tool did not find what was uploaded: {taken.body[:300]!r}")


async def _down(client: Client, count: int, observed: Observed) -> None:
    for _ in range(count):
        if await client.download(await client.call("make", output="a.bin", size=str(len(SMALL)))) != SMALL:
            raise LoadFailed("A download brought something else than its tool wrote.")


SCENARIOS = (
    Scenario(CALL, CALL, _calls, 1000),
    Scenario(SESSION, SESSION, sessions, 150, makes_sessions=True),
    Scenario(UP, UP, _up, 100),
    Scenario(DOWN, DOWN, _down, 100),
)


async def measure_switched(run: Run) -> None:
    """Every scenario through every front, round by round."""
    async with AsyncExitStack() as stack:
        anchors = [FRONTS[name] for name in (BASELINE, ENVOY, BARE) if run.has(name)]
        running = {
            front.name: started
            for front, started in (await stack.enter_async_context(run.started(PART, anchors))).items()
        }
        for name, sections in SWITCHES.items():
            room, adapters = run.room(PART, name), ADAPTERS if name in WITH_FILES else ()
            with run.noting(PART, name):
                start = adapter(run.upstream, room, adapters, **sections)
                running[name] = await stack.enter_async_context(start)
        for number in range(1, run.extent.rounds + 1):
            for scenario in SCENARIOS:
                progress(f"round {number} of {run.extent.rounds}: {scenario.title}")
                for name, front in running.items():
                    if scenario.name in (CALL, SESSION) or name in WITH_FILES:
                        with run.noting(PART, name):
                            await _add(run, scenario, name, front)


async def _add(run: Run, scenario: Scenario, name: str, front: Running) -> None:
    sample = await measure(scenario, front, int(scenario.count * run.extent.part))
    assert sample.cpu is not None
    run.results.figures.add(PART, scenario.name, name, sample.cpu)
