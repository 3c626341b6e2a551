"""The folder in which workers keep the numbers of metrics, so that each scrape has those of all."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

BEGAN = "began"
"""A file in it, as old as the numbers are. ``adapter/telemetry/worker_values.py`` reads it."""

_GAUGES = ("livesum", "livemax")


class MetricFiles:
    """A folder that only this user may read, from the start to ``close``; what workers counted in it is the
    supervisor's, so it outlives each of them.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mcp-adapter-metrics-"))
        (self.folder / BEGAN).touch()

    def __repr__(self) -> str:
        return f"<MetricFiles in {self.folder}>"

    def left(self, seat: int) -> None:
        """Drop the gauges of a worker that has ended; what it counted stays."""
        for kind in _GAUGES:
            with contextlib.suppress(OSError):
                (self.folder / f"gauge_{kind}_{seat}.db").unlink(missing_ok=True)

    def close(self) -> None:
        """Delete the folder. Never raises."""
        shutil.rmtree(self.folder, ignore_errors=True)
