"""The composition root: parts.py makes parts out of settings, filing.py those that move files, building.py puts
them together, running.py starts and stops them in order.
"""

from __future__ import annotations

from adapter.app.building import App, build
from adapter.app.running import running, serve

__all__ = ["App", "build", "running", "serve"]
