"""Long work on the loop: in short turns, of which others have one after each."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from adapter.relay.background import TURN, SingleFlight, in_turns, own_turn
from adapter.rules.last_used import LastUsed, Weight
from adapter.wire.piecewise import Apart, Piecewise
from tests.relay.turns import longest_wait

PIECE = 0.0002


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def work(pieces: int, outcome: str = "done") -> Piecewise[str]:
    for _ in range(pieces):
        spin(PIECE)
        yield None
    return outcome


@pytest.mark.timed
async def test_the_loop_comes_round_after_each_turn() -> None:
    """However many works there are, and however long."""
    works = asyncio.gather(*(in_turns(work(200, str(number))) for number in range(20)))
    assert await longest_wait(works) < 5 * TURN
    assert await works == [str(number) for number in range(20)]


async def test_short_work_is_done_at_once() -> None:
    """Nobody else has a turn before it is done."""
    order: list[str] = []
    asyncio.get_running_loop().call_soon(order.append, "other")
    order.append(await in_turns(work(0)))
    await asyncio.sleep(0)
    assert order == ["done", "other"]


@pytest.mark.timed
async def test_what_cannot_be_cut_has_a_turn_of_its_own() -> None:
    """Twenty who come at once take one each, and the loop comes round in between."""

    async def uncut() -> None:
        await own_turn()
        spin(TURN)

    assert await longest_wait(asyncio.gather(*(uncut() for _ in range(20)))) < 5 * TURN


async def test_works_take_turns() -> None:
    """A short one that comes later does not wait for a long one to end."""
    long = asyncio.ensure_future(in_turns(work(1000)))
    await asyncio.sleep(0)
    assert await in_turns(work(3, "short")) == "short"
    assert not long.done()
    assert await long == "done"


async def test_a_long_piece_is_done_in_a_thread() -> None:
    """And what it returns or raises is the work's own."""

    def fail() -> str:
        raise ValueError(threading.current_thread().name)

    def long() -> Piecewise[list[Any]]:
        found: list[Any] = [(yield Apart(threading.get_ident))]
        try:
            yield Apart(fail)
        except ValueError as error:
            found.append(str(error))
        return found

    ident, name = await in_turns(long())
    assert ident != threading.get_ident() and name != threading.current_thread().name


async def test_what_a_work_raises_is_raised() -> None:
    """And the next one has its turn."""

    def failing() -> Piecewise[None]:
        yield None
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_turns(failing())
    assert await in_turns(work(1)) == "done"


async def test_whoever_leaves_takes_nothing_from_others() -> None:
    """A work that nobody waits for any more ends, and the others go on."""
    left = asyncio.ensure_future(in_turns(work(100_000)))
    await asyncio.sleep(0)
    left.cancel()
    assert await in_turns(work(20)) == "done"
    with pytest.raises(asyncio.CancelledError):
        await left


# --- one for all ----------------------------------------------------------------------------------------------


async def test_who_asks_at_the_same_time_shares_one_answer() -> None:
    """One of them may leave, and whoever comes later has it found anew; failures are shared as well."""
    flight = SingleFlight[str, int]()
    asked = 0
    gate = asyncio.Event()

    async def find() -> int:
        nonlocal asked
        asked += 1
        await gate.wait()
        if asked == 2:
            raise ValueError("no")
        return asked

    for round_ in (1, 2):
        gate.clear()
        asking = [asyncio.ensure_future(flight.get("key", find)) for _ in range(3)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.sleep(0)
        assert repr(flight) == "<SingleFlight: 1 under way>"
        gate.set()
        found = await asyncio.gather(*asking[1:], return_exceptions=True)
        assert found == [1, 1] if round_ == 1 else all(isinstance(each, ValueError) for each in found)
    assert asked == 2 and repr(flight) == "<SingleFlight: 0 under way>"


# --- what is kept ---------------------------------------------------------------------------------------------


def test_what_was_used_last_is_kept() -> None:
    """So many values, and no more of them than weigh so much; what several share counts once."""
    kept = LastUsed[str, tuple[str, int]](3, 100, lambda value: Weight(value[0], value[1]))
    for key in "abc":
        kept.put(key, (key, 10))
    assert kept.get("a") == ("a", 10)
    kept.put("d", ("d", 10))
    assert list(kept) == ["c", "a", "d"] and kept.get("b") is None and kept.size == 30
    kept.put("e", ("a", 10))
    assert list(kept) == ["a", "d", "e"] and kept.size == 20
    kept.put("heavy", ("heavy", 500))
    assert list(kept) == ["heavy"] and len(kept) == 1
    kept.put("heavy", ("light", 5))
    assert kept.size == 5 and kept.values["heavy"] == ("light", 5)
    kept.drop("heavy")
    kept.drop("never")
    assert (len(kept), kept.size) == (0, 0)
    kept.put("x", ("x", 1))
    kept.clear()
    assert repr(kept) == "<LastUsed: 0 values, 0 bytes>"
