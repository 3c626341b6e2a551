"""The files of scripts that run in the adapter's own process, as modules."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from adapter.hosted.scripts.references import Reference, ScriptInvalid


class Modules:
    """Runs each file once for as long as it stays the same, so that what its functions share they share."""

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
    """The file as a module of its own, anew each time; its name is the same, so that reloads do not pile up.

    Raises ScriptInvalid.
    """
    name = "adapter_script_" + hashlib.sha256(str(reference.path).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, reference.path)
    if spec is None or spec.loader is None:
        raise ScriptInvalid(f"{reference.text!r} is no Python file; give it runtime: subprocess.")
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
