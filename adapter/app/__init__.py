"""The composition root. ``build`` puts the parts together in the order of the floors: ``base``, ``files``,
``tools``, ``servers``, ``core``, ``edge``, ``console``. Each is given ``base``, to which it adds its routes and its
tasks of the cleanup. ``run`` starts and stops them, on a port or inside a host's application; ``serve`` is the process.
"""

from __future__ import annotations

from adapter.app.build import App, build
from adapter.app.run import running
from adapter.app.serve import serve

__all__ = ["App", "build", "running", "serve"]
