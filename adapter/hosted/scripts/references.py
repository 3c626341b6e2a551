"""The place of a script, and the function of it to call: ``path#function`` as it is configured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

Tell = Callable[[float, str | None], Awaitable[None]]
"""Told of a script's progress: percent of 100, and a sentence or None."""


class ScriptInvalid(Exception):
    """A script that cannot be used. The sentence is for whoever configures it, and names it as they did."""


class ScriptFailed(Exception):
    """A script that ended without a result; its first line may be told to a caller after redaction."""


class ScriptTimedOut(TimeoutError):
    """A script that was given up; ``str`` names the seconds it had."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s")


class Script(Protocol):
    """Code of the user's own."""

    @property
    def reference(self) -> str:
        """As the configuration writes it."""

    async def call(self, payload: Any, context: Any, timeout: float | None, tell: Tell | None = None) -> Any:
        """Return what the script returns, within ``timeout`` seconds.

        Raises ScriptTimedOut, ScriptFailed, ToolUserError, and in process whatever the script raises. Its progress
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
    """``function`` is None where only a file was named."""

    text: str
    path: Path
    function: str | None


def resolve(text: str, base: Path, project: Path | None = None) -> Reference:
    """The script that ``text`` names. Raises ScriptInvalid if there is no such file.

    A path may be absolute; one that begins with ``./`` or ``../`` is looked for in ``base``, any other there first
    and then in ``project``.
    """
    named, mark, function = text.partition("#")
    if not named or (mark and not function.isidentifier()):
        raise ScriptInvalid(f"{text!r} names no script: write path.py#function, or path.py alone.")
    places = [base]
    if project is not None and not named.startswith(("./", "../")):
        places.append(project)
    for place in places:
        if (path := place / named).is_file():
            return Reference(text, path.resolve(), function or None)
    raise ScriptInvalid(f"The script {named} does not exist.")
