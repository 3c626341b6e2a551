"""How many more files the system lets this process open."""

from __future__ import annotations

import resource

RESERVE = 64
"""Open files that are kept free for connections of another kind, where the system allows many."""


def scarce(number: int, reserves: int) -> bool:
    """Whether so few files may be opened beside the one of this number that ``reserves`` times the reserve is not left.

    A new file has the lowest number that is free, so all below it are in use.
    """
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return False
    return number >= allowed - reserves * min(RESERVE, allowed // 8)
