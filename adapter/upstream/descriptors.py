"""The number of further files that the system lets this process open."""

from __future__ import annotations

import resource

RESERVE = 64
"""Open files that are kept free for connections of another kind, where the system allows many."""


def scarce(number: int, reserves: int) -> bool:
    """Tell whether fewer files than ``reserves`` times the reserve may still be opened beside the one of this number.

    A new file has the lowest number that is free, so all below it are in use.
    """
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return False
    return number >= allowed - reserves * min(RESERVE, allowed // 8)
