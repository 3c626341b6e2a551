"""The scripts of a configuration, each loaded into the runtime it is meant for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from structlog.typing import FilteringBoundLogger

from adapter.hosted.scripts.inprocess import InProcessScript
from adapter.hosted.scripts.modules import Modules
from adapter.hosted.scripts.references import Script, resolve
from adapter.hosted.scripts.subprocesses import Confinement, SubprocessScript
from adapter.hosted.scripts.worker_threads import Workers

Runtime = Literal["inprocess", "subprocess"]


class Scripts:
    """Loads scripts and holds what they share: threads in process, and how a subprocess is confined."""

    def __init__(
        self,
        log: FilteringBoundLogger,
        *,
        project: Path | None = None,
        confinement: Confinement | None = None,
    ) -> None:
        self._log = log
        self._project = project
        self._confinement = confinement or Confinement()
        self._workers = Workers()
        self._modules = Modules()

    def __repr__(self) -> str:
        return f"<Scripts: {self.leftover} calls left over>"

    @property
    def leftover(self) -> int:
        """Calls of scripts in process that were given up and whose threads have not ended."""
        return self._workers.leftover

    @property
    def modules(self) -> Modules:
        """The files that were run."""
        return self._modules

    @property
    def workers(self) -> Workers:
        """The threads in which plain functions run."""
        return self._workers

    def load(self, reference: str, base: Path, runtime: Runtime = "inprocess") -> Script:
        """The script that ``reference`` names, as ``references.resolve`` finds it. Raises ScriptInvalid.

        In process its file is run here, and once for all that is loaded from it while it stays the same.
        """
        found = resolve(reference, base, self._project)
        if runtime == "subprocess":
            return SubprocessScript(found, self._confinement, self._log)
        return InProcessScript(found, self._workers, self._modules)

    def close(self) -> None:
        """Let go of the threads."""
        self._workers.close()
