"""What the user's code may raise that would end more than its own call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from adapter.hosted.scripts.references import ScriptFailed


@contextlib.contextmanager
def contained(what: str) -> Iterator[None]:
    """Raises ScriptFailed for what the body raises beside exceptions: in a task it would end the adapter, or look as
    if the call had been cancelled. ``what`` is what the code is called in the sentence.

    A cancellation of the task itself passes, and so does the end of a coroutine that nobody runs any more.
    """
    try:
        yield
    except (Exception, GeneratorExit):
        raise
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ScriptFailed(f"{what} cancelled itself") from cancelled
    except SystemExit as left:
        raise ScriptFailed(f"{what} called sys.exit()") from left
    except BaseException as error:
        raise ScriptFailed(f"{what} raised {type(error).__name__}") from error
