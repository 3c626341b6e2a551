"""What takes long to make, and is made once for all workers of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.provision import locked


def made_once(places: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The directory of this name, which ``make`` is given to fill unless another worker has."""
    base = places.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with locked(place):
        if not place.exists():
            being_made = place.with_name(f"{name}-being-made")
            being_made.mkdir()
            make(being_made)
            being_made.rename(place)
    return place
