"""Why a database cannot be reached or used, in words that hold nothing of how it was configured and of its rows."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterable

_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "nothing listens at the configured address"),
    (socket.gaierror, "the configured host name is not known"),
    (ssl.SSLError, "the TLS handshake failed"),
    (TimeoutError, "no answer in time"),
    (ConnectionError, "the connection was lost"),
    (FileNotFoundError, "the configured socket does not exist"),
    (PermissionError, "the configured address may not be used"),
    (OSError, "the configured address cannot be reached"),
    (EOFError, "the connection was lost"),
)
"""The first that fits counts: each is a class of the operating system's or of one above it."""


def reason(error: BaseException) -> str | None:
    """The reason of a failed or lost connection, or None when ``error`` is neither.

    Drivers wrap what the system said, so the chain of causes is searched too, the innermost first.
    """
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    for link in reversed(chain):
        for kind, words in _REASONS:
            if isinstance(link, kind):
                return words
    return None


_QUOTED = re.compile(r"""(['"]).*\1""", re.DOTALL)
"""To the last quote, not the next: what is quoted may hold some."""


def of_the_call(sentence: str, values: Iterable[object]) -> str:
    """A server's sentence about a value or a place of the statement that it could not use, which it quotes.

    The value may be one of any row that the statement passed, and the place is followed by the rest of the
    statement: what is quoted stays only where it is one of the call's own values.
    """
    own = {str(value) for value in values}
    return _QUOTED.sub(
        lambda found: found[0] if found[0][1:-1] in own else f"{found[1]}…{found[1]}", sentence
    )
