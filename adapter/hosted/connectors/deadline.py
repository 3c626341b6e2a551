"""One way to say that a statement took too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapter.hosted.connectors.port import QueryTimedOut


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Cancels its body after ``seconds``. Raises QueryTimedOut then, and lets every other failure pass."""
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            yield
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise QueryTimedOut(f"the statement took longer than {seconds:g} s") from error
