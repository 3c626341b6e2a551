"""Refusals of servers that commands talk to."""

from __future__ import annotations

from typing import Any


class ServerRefused(Exception):
    """A server that cannot be reached, or that answered a request with an error.

    ``str(error)`` is one sentence for people; ``data`` is what the error of a request has beside its message.
    """

    def __init__(self, sentence: str, data: Any = None) -> None:
        super().__init__(sentence)
        self.data = data


class TokenRefused(ServerRefused):
    """A server that asks for a token, or for another one. ``data`` is the URL of its OAuth metadata, or None."""
