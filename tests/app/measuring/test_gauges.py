"""Gauges: when they are read, and what becomes of one that cannot be."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

from structlog import get_logger
from structlog.testing import capture_logs

from adapter.app.measuring.gauges import TURN, GaugeReading, Gauges
from adapter.rules.metrics.catalogue import BREAKER_STATE, BUFFERED, FILES, GRANTS, UPSTREAM_CONNECTIONS_USED
from adapter.telemetry.metric_registry import MetricRegistry


def gauges() -> tuple[Gauges, MetricRegistry]:
    registry = MetricRegistry()
    return Gauges(registry, get_logger()), registry


def shown(registry: MetricRegistry) -> dict[str, float]:
    return {sample.name: sample.value for family in registry.collect() for sample in family.samples}


def broken() -> Iterator[GaugeReading]:
    """A source that never works."""
    raise RuntimeError("this source is broken")


def unable() -> Iterator[None]:
    """Something that can never be counted."""
    yield
    raise RuntimeError("this cannot be counted")


async def slow_and_broken() -> GaugeReading:
    """A source that never works, and is asked less often."""
    raise RuntimeError("this source is broken too")


def files() -> Iterator[GaugeReading]:
    """A source that works."""
    yield GaugeReading(FILES, 3)


async def test_a_source_that_fails_is_told_of_once() -> None:
    """All others are read, in every reading, and it is tried again."""
    read, registry = gauges()
    count = iter(range(10))

    def often_broken() -> Iterator[GaugeReading]:
        if (number := next(count)) < 2:
            raise RuntimeError("this source is broken at first")
        yield GaugeReading(BUFFERED, number)

    read.sources += [broken, often_broken, files]
    read.flushes.append(unable)
    with capture_logs() as logged:
        for _ in range(3):
            await read.read()
    assert [each["event"] for each in logged] == ["some metrics could not be read"] * 3
    assert shown(registry)["adapter_files"] == 3
    assert shown(registry)["adapter_request_buffer_bytes"] == 2


async def test_the_reading_goes_on_behind_any_error() -> None:
    """Also one of what the state store was asked."""
    read, registry = gauges()
    asked = asyncio.Event()
    twice = iter((None, None, asked.set))

    def noted() -> Iterator[GaugeReading]:
        if (then := next(twice, None)) is not None:
            then()
        yield GaugeReading(FILES, 3)

    async def grants() -> GaugeReading:
        return GaugeReading(GRANTS, 5)

    read.sources += [broken, noted]
    read.slow += [slow_and_broken, grants]
    read.flushes.append(unable)
    with capture_logs() as logged:
        running = asyncio.create_task(read.run())
        async with asyncio.timeout(30):
            await asyncio.wait({running, asyncio.create_task(asked.wait())}, return_when="FIRST_COMPLETED")
        assert not running.done()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert len(logged) == 3
    assert shown(registry)["adapter_files"] == 3 and shown(registry)["adapter_grants"] == 5


async def test_others_have_turns_while_much_is_counted() -> None:
    """However much it is: nobody waits for the last of it."""
    read, _ = gauges()
    counted = 0

    def much() -> Iterator[None]:
        nonlocal counted
        for _ in range(20):
            time.sleep(TURN)
            counted += 1
            yield

    read.flushes.append(much)
    reading = asyncio.create_task(read.read())
    await asyncio.sleep(0)
    for _ in range(5):
        before = counted
        await asyncio.sleep(0)
        assert counted - before <= 2
    await reading
    assert counted == 20


async def test_what_is_read_of_a_part_that_ended_does_not_stay() -> None:
    """Its gauges fall to zero, and what its successor counts from zero is added."""
    read, registry = gauges()

    def of_server(used: int) -> Iterator[GaugeReading]:
        yield GaugeReading(BREAKER_STATE, 2, ("one",))
        yield GaugeReading(UPSTREAM_CONNECTIONS_USED, used, ("one", "new"))

    read.sources.append(lambda: of_server(5))
    await read.read()
    read.end(of_server(7))
    assert shown(registry)[BREAKER_STATE.name] == 0
    read.sources[-1] = lambda: of_server(2)
    await read.read()
    assert shown(registry)[BREAKER_STATE.name] == 2
    assert shown(registry)[UPSTREAM_CONNECTIONS_USED.name] == 9
