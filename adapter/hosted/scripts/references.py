"""The place of a script, and the function of it to call: ``path#function`` as it is configured."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


class ScriptInvalid(Exception):
    """A script that cannot be used. The sentence names it as the configuration does."""


class ScriptFailed(Exception):
    """A script that ended without a result; its first line may be told to a caller after redaction."""


class ScriptTimedOut(TimeoutError):
    """A script that ran out of time; ``str`` names the seconds it had."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s")


@dataclass(frozen=True, slots=True)
class Reference:
    """A file, and the function of it to call; ``function`` is None where only a file was named."""

    text: str
    path: Path
    function: str | None


def resolve(text: str, base: Path) -> Reference:
    """The script that ``text`` names, by an absolute path or one below ``base``. Raises ScriptInvalid."""
    named, mark, function = text.partition("#")
    if not named or (mark and not function.isidentifier()):
        raise ScriptInvalid(f"{text!r} does not name a script: write path.py#function or path.py.")
    if not (path := base / named).is_file():
        raise ScriptInvalid(f"The script {named} does not exist.")
    return Reference(text, path.resolve(), function or None)


class Modules:
    """Modules of files. Each file is run once, so that its functions share state."""

    def __init__(self) -> None:
        self._known: dict[Path, ModuleType] = {}

    def of(self, reference: Reference) -> ModuleType:
        """The module of a script's file. Raises ScriptInvalid when it cannot be imported."""
        if reference.path in self._known:
            return self._known[reference.path]
        folder = str(reference.path.parent)
        if folder not in sys.path:
            # At the end: a script may import what lies beside it, and take nobody else's module away.
            sys.path.append(folder)
        module = self._known[reference.path] = _imported(reference)
        return module


def _imported(reference: Reference) -> ModuleType:
    """Run the file as a new module. Raises ScriptInvalid."""
    name = "adapter_script_" + hashlib.sha256(str(reference.path).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, reference.path)
    if spec is None or spec.loader is None:
        raise ScriptInvalid(f"{reference.text!r} is not a Python file: set runtime: subprocess.")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickle look a class's module up while it is being made.
    sys.modules[name] = module
    try:
        # Not by the spec's loader: it may take compiled code from a moment ago for this second's file.
        code = compile(reference.path.read_bytes(), str(reference.path), "exec")
        exec(code, module.__dict__)  # noqa: S102  (running the operator's own scripts is what this module is for)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ScriptInvalid(
            f"{reference.text!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    return module
