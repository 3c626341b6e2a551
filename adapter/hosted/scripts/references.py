"""The place of a script, and the function of it to call: ``path#function`` as it is configured."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

Tell = Callable[[float, str | None], Awaitable[None]]
"""Told of a script's progress: percent of 100, and a sentence or None."""


class ScriptInvalid(Exception):
    """A script that cannot be used. The sentence names it as the configuration does."""


class ScriptFailed(Exception):
    """A script that ended without a result; its first line may be told to a caller after redaction."""


class ScriptTimedOut(TimeoutError):
    """A script that ran out of time; ``str`` names the seconds it had."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s")


class Script(Protocol):
    """Code of the user's own."""

    @property
    def reference(self) -> str:
        """The reference as the configuration writes it."""

    async def call(self, payload: Any, context: Any, timeout: float | None, tell: Tell | None = None) -> Any:
        """Return what the script returns, within ``timeout`` seconds.

        Raises ScriptTimedOut, ScriptFailed, ToolUserError, and in process any exception of the script. Its progress
        goes to ``tell``, which it waits for. If the caller is cancelled the script is too, as far as that can be.
        """

    def stale(self) -> bool:
        """Tell whether its file is another than when it was loaded, or gone."""


class Stamp(NamedTuple):
    """The values that differ between two states of a file."""

    modified: int
    size: int
    inode: int


def stamp_of(path: Path) -> Stamp | None:
    """The file's stamp, None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino)


@dataclass(frozen=True, slots=True)
class Reference:
    """A file, and the function of it to call; ``function`` is None where only a file was named."""

    text: str
    path: Path
    function: str | None


class LoadedFile:
    """The file of a script as it was when it was loaded."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference.text
        self._path = reference.path
        self._stamp = stamp_of(reference.path)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.reference!r}>"

    def stale(self) -> bool:
        """Tell whether the file is another than when it was loaded, or gone."""
        return stamp_of(self._path) != self._stamp


def resolve(text: str, base: Path, project: Path | None = None) -> Reference:
    """The script that ``text`` names. Raises ScriptInvalid if there is no such file.

    A path may be absolute; one that begins with ``./`` or ``../`` is looked for in ``base``, any other there first
    and then in ``project``.
    """
    named, mark, function = text.partition("#")
    if not named or (mark and not function.isidentifier()):
        raise ScriptInvalid(f"{text!r} does not name a script: write path.py#function or path.py.")
    places = [base]
    if project is not None and not named.startswith(("./", "../")):
        places.append(project)
    for place in places:
        if (path := place / named).is_file():
            return Reference(text, path.resolve(), function or None)
    raise ScriptInvalid(f"The script {named} does not exist.")


class Modules:
    """Modules of files. Each file is run once for as long as it stays the same, so that its functions share state."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[bytes, ModuleType]] = {}

    def __repr__(self) -> str:
        return f"<Modules: {len(self._known)} files>"

    def of(self, reference: Reference) -> ModuleType:
        """The module of a script's file. Raises ScriptInvalid when it cannot be imported."""
        # By what it says: two versions may have one size and one time of change.
        source = reference.path.read_bytes()
        known = self._known.get(reference.path)
        if known is not None and known[0] == source:
            return known[1]
        folder = str(reference.path.parent)
        if folder not in sys.path:
            # At the end: a script may import what lies beside it, and take nobody else's module away.
            sys.path.append(folder)
        module = _imported(reference, source)
        self._known[reference.path] = (source, module)
        return module


def _imported(reference: Reference, source: bytes) -> ModuleType:
    """Run the file as a new module. Its name stays the same, so that reloads do not pile up.

    Raises ScriptInvalid.
    """
    name = "adapter_script_" + hashlib.sha256(str(reference.path).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, reference.path)
    if spec is None or spec.loader is None:
        raise ScriptInvalid(f"{reference.text!r} is not a Python file: set runtime: subprocess.")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    # Dataclasses and pickle look a class's module up while it is being made.
    sys.modules[name] = module
    try:
        # Not by the spec's loader: it may take compiled code from a moment ago for this second's file.
        code = compile(source, str(reference.path), "exec")
        exec(code, module.__dict__)  # noqa: S102  (running the operator's own scripts is what this module is for)
    except (Exception, SystemExit) as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise ScriptInvalid(
            f"{reference.text!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    return module
