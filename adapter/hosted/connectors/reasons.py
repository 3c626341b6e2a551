"""Why a database cannot be reached, in words that hold nothing of how it was configured."""

from __future__ import annotations

import socket
import ssl

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
