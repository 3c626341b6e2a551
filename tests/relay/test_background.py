"""Work that a cancellation waits for, and looks at rows in the background."""

from __future__ import annotations

import asyncio
import gc

import pytest

from adapter.errors import StoreUnavailable
from adapter.relay.background import ROWS, BackgroundTasks, RowLooks, run_beside, run_to_completion
from tests.waiting import until


async def test_the_result_and_the_failure_are_the_works_own() -> None:
    """As if it had been awaited."""

    async def divide(by: int) -> float:
        await asyncio.sleep(0)
        return 1 / by

    assert await run_to_completion(divide(2)) == 0.5
    with pytest.raises(ZeroDivisionError):
        await run_to_completion(divide(0))


async def test_work_beside_its_caller_has_its_result_and_its_failure() -> None:
    """As if it had been awaited; and the failure is no garbage that only the collector finds."""

    async def divide(by: int) -> float:
        await asyncio.sleep(0)
        return 1 / by

    assert await run_beside(divide(2)) == 0.5
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError):
            await run_beside(divide(0))
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("fails", [False, True])
async def test_work_beside_a_cancelled_caller_goes_on(fails: bool) -> None:
    """The caller goes at once, and nobody is told of a failure that comes later."""
    go_on, ended = asyncio.Event(), asyncio.Event()
    reports: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

    async def work() -> None:
        await go_on.wait()
        ended.set()
        if fails:
            raise ValueError

    caller = asyncio.ensure_future(run_beside(work()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not ended.is_set()
    go_on.set()
    await ended.wait()
    await asyncio.sleep(0)
    gc.collect()
    assert not reports


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_caller_waits_and_what_was_done_is_undone(fails: bool) -> None:
    """Cancelled twice, it goes when the work has ended and been taken back; what failed leaves nothing to undo."""
    go_on = asyncio.Event()
    seen: list[str] = []

    async def work() -> str:
        await go_on.wait()
        seen.append("done")
        if fails:
            raise ValueError
        return "result"

    async def undo(result: str) -> None:
        seen.append(f"undone: {result}")

    caller = asyncio.ensure_future(run_to_completion(work(), undo))
    for _ in range(2):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert seen == (["done"] if fails else ["done", "undone: result"])


async def test_rows_are_looked_at_in_order_and_again_where_the_store_failed() -> None:
    """A few together: first those that others have named, last those for which the store failed. Then comes a pause."""
    seen: list[int] = []

    async def look(number: int, fails: set[int]) -> None:
        seen.append(number)
        if number in fails:
            fails.remove(number)
            raise StoreUnavailable

    tasks, fails = BackgroundTasks(), {1}
    looks = RowLooks(look, tasks, 3600.0)
    looks.add(dict.fromkeys(range(3 * ROWS), fails))
    looks.add({-1: fails}, told=True)
    await until(lambda: len(seen) == ROWS + 1)
    assert seen == [-1, *range(ROWS)]
    await until(lambda: len(seen) == 3 * ROWS + 2)
    looks.add({-2: fails}, told=True)
    await asyncio.sleep(0.05)
    assert seen[ROWS + 1 :] == [*range(ROWS, 3 * ROWS), 1]
    assert repr(looks) == "<RowLooks: looking, 1 waiting>"
    await tasks.close()
    looks.add({-3: fails})
    await until(lambda: len(seen) == 3 * ROWS + 4)
    assert seen[-2:] == [-2, -3]
    await tasks.close()


async def test_looks_at_many_rows_take_a_fifth_of_the_time() -> None:
    """The pause behind all of them is none between them, but they are no load for the store."""
    begun: list[float] = []

    async def look(_: int, seconds: float) -> None:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(seconds)

    tasks = BackgroundTasks()
    RowLooks(look, tasks, 3600.0).add(dict.fromkeys(range(2 * ROWS), 0.05))
    await until(lambda: len(begun) == 2 * ROWS)
    assert begun[ROWS] - begun[ROWS - 1] > 0.24
    await tasks.close()
