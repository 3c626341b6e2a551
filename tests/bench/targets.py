"""What the adapter has to reach (must) and should (goal), and whether this run says that it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench import eras, mounts, switched, tool_lists
from tests.bench.files import COPY_HASH, CPU, DOWN, MANY, ONE, SPEED
from tests.bench.files import MEMORY as PEAK
from tests.bench.memory import BASE, HELD, IDLE
from tests.bench.memory import PART as MEMORY
from tests.bench.results import BARE, BASELINE, ENVOY, SUBJECT, Results

Read = Callable[[Results], list[float]]


@dataclass(frozen=True)
class Target:
    """``read`` answers a value per round, none when this run did not measure it. With ``at_least`` more is better."""

    number: str
    measure: str
    unit: str
    must: float
    goal: float
    read: Read
    at_least: bool = False

    def verdict(self, value: float | None) -> str:
        """``goal``, ``must``, ``not met`` or ``not measured``."""
        if value is None:
            return "not measured"
        if self._meets(value, self.goal):
            return "goal"
        return "must" if self._meets(value, self.must) else "not met"

    def _meets(self, value: float, bound: float) -> bool:
        return value >= bound if self.at_least else value <= bound


def _times(scenario: str, other: str = BASELINE) -> Read:
    return lambda results: results.times(SUBJECT, scenario, other)


def _switched(on: str, other: str = SUBJECT) -> Read:
    return lambda results: results.figures.times(switched.PART, switched.CALL, on, other)


def _small_file(measure: str) -> Read:
    return lambda results: [us / 1e3 for us in results.figures.of(switched.PART, measure, switched.FILES)]


def _listed(measure: str, unit: float) -> Read:
    part, front = tool_lists.PART, tool_lists.GUARDING
    return lambda results: [value / unit for value in results.figures.of(part, measure, front)]


def _cheaper_than(front: str) -> Read:
    return lambda results: results.times(front, "seq", SUBJECT)


def _added(scenario: str, share: float) -> Read:
    return lambda results: results.added(SUBJECT, scenario, share)


def _found(part: str, measure: str) -> Read:
    return lambda results: results.figures.of(part, measure, SUBJECT)


def _guarded_list(results: Results) -> list[float]:
    return results.figures.times(tool_lists.PART, tool_lists.WARM, tool_lists.GUARDING, BASELINE)


def _bridged(measure: str) -> Read:
    return lambda results: results.figures.times(eras.PART, measure, eras.BRIDGED, eras.PIPED)


def _at_mount(measure: str) -> Read:
    return lambda results: results.figures.times(mounts.PART, measure, mounts.MOUNT, mounts.OWN)


def _beside(kind: str, measure: str, other: str) -> Read:
    return lambda results: results.figures.times(kind, measure, SUBJECT, other)


TARGETS = (
    Target("1", "piped call, one at a time", "× nginx", 3, 2, _times("seq")),
    Target("1", "the same", "× bare relay", 1.8, 1.3, _times("seq", BARE)),
    Target("2", "piped call, 8 at once", "× nginx", 3, 2.5, _times("conc")),
    Target("2", "the same", "× bare relay", 1.8, 1.4, _times("conc", BARE)),
    Target("3", "cheaper than FastMCP's proxy", "times", 75, 150, _cheaper_than("fastmcp"), at_least=True),
    Target("3", "the same, its shared mode", "times", 8, 15, _cheaper_than("fastmcp-shared"), at_least=True),
    Target("4", "added latency, p50", "ms", 0.2, 0.15, _added("seq", 0.5)),
    Target("4", "added latency, p99", "ms", 1.5, 0.5, _added("seq", 0.99)),
    Target("5", "first event, added p50", "ms", 0.3, 0.2, _added("first", 0.5)),
    Target("6", "stream", "× nginx", 2.0, 1.7, _times("sse")),
    Target("8", "1 MiB answer", "× nginx", 1.4, 1.3, _times("big")),
    Target("9", "session as SDKs send it", "× nginx", 4, 3.3, _times("churn")),
    Target("10", "upload", "CPU s/GiB", 1.8, 1.5, _found(ONE, CPU)),
    Target("10", "upload, speed", "MiB/s", 0, 450, _found(ONE, SPEED), at_least=True),
    Target("10", "the same", "× copy and hash", 0.8, 0.8, _beside(ONE, SPEED, COPY_HASH), at_least=True),
    Target("10", "RSS above rest, one upload", "MiB", 16, 16, _found(ONE, PEAK)),
    Target("10", "RSS above rest, uploads at once", "MiB", 16, 16, _found(MANY, PEAK)),
    Target("11", "download", "CPU s/GiB", 0.7, 0.35, _found(DOWN, CPU)),
    Target("11", "the same", "× nginx", 1.2, 1.2, _beside(DOWN, CPU, BASELINE)),
    Target("15", "list of 50, all policies of tools", "× nginx", 3, 2, _guarded_list),
    Target("12", "RSS at rest", "MiB", 45, 40, _found(MEMORY, BASE)),
    Target("12", "RSS per idle session", "KiB", 1, 1, _found(MEMORY, IDLE)),
    Target("12", "RSS per held stream", "KiB", 40, 25, _found(MEMORY, HELD)),
    Target("19", "call, audit on", "× call", 1.2, 1.1, _switched(switched.AUDIT)),
    Target("19", "call, metrics on", "× call", 1.1, 1.06, _switched(switched.METRICS)),
    Target("19", "call, all on", "× nginx", 4, 3, _switched(switched.ALL, BASELINE)),
    Target("20", "first list of 50 of a session", "CPU ms", 0.3, 0.25, _listed(tool_lists.OF_SESSION, 1e3)),
    Target("20", "session and first list of 50", "CPU ms", 6, 4, _listed(tool_lists.FIRST, 1)),
    Target("21", "4 KiB up and their call", "CPU ms", 1.6, 1.2, _small_file(switched.UP)),
    Target("21", "call and 4 KiB down", "CPU ms", 1.5, 1.1, _small_file(switched.DOWN)),
    Target("22", "1 MiB request", "× Envoy", 2, 1.5, _times("request", ENVOY)),
    Target("23", "call, 2 workers, light load", "× one process", 1.2, 1.1, _switched(switched.WORKERS)),
    Target("24", "call at a mount of 50 servers", "× own address", 1.15, 1.1, _at_mount(mounts.CALL)),
    Target("24", "list of 1,000 there", "× one server's", 1.5, 1.2, _at_mount(mounts.LIST)),
    Target("25", "legacy client at a modern server", "× piped", 2, 1.5, _bridged(eras.LEGACY)),
    Target("25", "modern client at a legacy server", "× piped", 2, 1.5, _bridged(eras.MODERN)),
)
