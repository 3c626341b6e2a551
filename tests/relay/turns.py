"""How long a loop does not come round."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

from tests.cpu_time import slowness


async def longest_wait(task: asyncio.Future[Any]) -> float:
    """The longest time for which the loop did not come round, until the task is done; in CPU time of this thread,
    so that what else runs on the machine counts little. The collector skips what earlier tests left, as it skips
    what the adapter had before it began to serve.
    """
    longest = 0.0
    gc.freeze()
    try:
        while not task.done():
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)
    finally:
        gc.unfreeze()
    return longest / max(slowness(), 1.0)
