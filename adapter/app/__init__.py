"""The composition root: ``parts`` makes parts out of settings, ``files`` those that move files, ``builder`` puts them
together, ``runner`` starts and stops them in order.
"""

from __future__ import annotations

from adapter.app.builder import App, build
from adapter.app.runner import running, serve

__all__ = ["App", "build", "running", "serve"]
