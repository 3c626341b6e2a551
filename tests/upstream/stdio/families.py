"""An adapter that owns many children: ``python -m tests.upstream.stdio.families COUNT`` says their process ids.

The first line is the supervisor's process id; then come one line for each child, with its own id and those of the two
processes that it has started. None of them ends by itself or because of TERM.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from adapter.log import get_logger
from adapter.upstream.stdio.supervisor import Supervisor
from tests.upstream.stdio.children import STUBBORN, Witness, starting


async def own(count: int) -> None:
    """Start the children, say their ids and wait for ever."""
    supervisor = Supervisor(get_logger(__name__))
    start, owners = starting(supervisor), [Witness() for _ in range(count)]
    children = [await start(STUBBORN, owner) for owner in owners]
    print(supervisor.pid, flush=True)
    for owner in owners:
        print((await owner.line()).decode(), flush=True)
    await asyncio.Event().wait()
    del children


if __name__ == "__main__":
    uvloop.run(own(int(sys.argv[1])))
