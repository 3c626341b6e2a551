"""A function that runs in a child process, a copy of this one, and answers with bytes.

What it imports and keeps in memory ends with the child.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable
from typing import NoReturn


class ForkedCall:
    """A call that is under way. It begins at once; nothing else that the child does is seen here.

    Begin before the first thread or event loop of this process, as for every fork. ``prepare`` is called in the child
    before anything else.
    """

    def __init__(self, call: Callable[[], bytes], prepare: Callable[[], None] | None = None) -> None:
        self._answer, answer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._answer)
            _answer_and_end(call, answer, prepare)
        os.close(answer)

    def fileno(self) -> int:
        """A descriptor that can be read once the call has ended."""
        return self._answer

    def result(self) -> bytes:
        """Wait for the answer; b"" after a failure, which the child has written to stderr. May be called once."""
        with os.fdopen(self._answer, "rb") as pipe:
            answer = pipe.read()
        # A process that reaps all its children may have been first.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child, 0)
        return answer


def _answer_and_end(call: Callable[[], bytes], answer: int, prepare: Callable[[], None] | None) -> NoReturn:
    """Write the answer to the pipe, and end this process without what the parent does at its end."""
    status = 1
    try:
        if prepare is not None:
            prepare()
        with os.fdopen(answer, "wb") as pipe:
            pipe.write(call())
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)
