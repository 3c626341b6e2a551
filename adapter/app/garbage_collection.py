"""The garbage collector of a process that holds many connections."""

from __future__ import annotations

import gc

THRESHOLDS = (700, 10, 100)
"""Of the three generations; the last is ten times as large as it is by default."""


def settle() -> None:
    """Leave what there is now out of every further collection, and look through all that lives less often.

    Each connection adds some hundred objects, and a look through those of three thousand streams holds the loop for
    0.2 s. Reference counts free what exchanges leave behind; the collector is for cycles alone.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
