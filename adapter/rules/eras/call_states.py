"""The ``requestState`` of calls that wait for answers of their clients: sealed, and bound to who called what. Pure.

Source of the rules: MCP 2026-07-28, "Multi Round-Trip Requests", server requirements.
"""

from __future__ import annotations

import hmac
import re
from typing import NamedTuple

_STATE = re.compile(
    r"call1\.([0-9a-zA-Z._-]{0,64})\.([0-9a-f]{32})\.([0-9]{1,9})\.([0-9]{1,12})\.([0-9a-f]{64})"
)


class CallState(NamedTuple):
    """``owner`` is the replica that has the call, "" where there is one process. ``round`` counts its questions.

    ``due`` is when it is given up, in Unix seconds.
    """

    owner: str
    call: str
    round: int
    due: int

    def sealed(self, key: bytes, bound_to: str) -> str:
        """The text of it, which counts only with what it is ``bound_to``."""
        text = f"call1.{self.owner}.{self.call}.{self.round}.{self.due}"
        return f"{text}.{_seal(key, text, bound_to)}"


def read_state(text: str, key: bytes, bound_to: str) -> CallState | None:
    """The state out of its text; None for one that was changed, was sealed by others, or is bound to something else."""
    found = _STATE.fullmatch(text)
    if found is None:
        return None
    seal = _seal(key, text[: found.start(5) - 1], bound_to)
    if not hmac.compare_digest(seal, found[5]):
        return None
    return CallState(found[1], found[2], int(found[3]), int(found[4]))


def owner_of(text: str | None) -> str | None:
    """The replica that has the call, as a state says that may have been made up; None where it says none."""
    found = None if text is None else _STATE.fullmatch(text)
    return None if found is None else found[1] or None


def _seal(key: bytes, text: str, bound_to: str) -> str:
    return hmac.digest(key, f"{text}\n{bound_to}".encode(), "sha256").hex()
