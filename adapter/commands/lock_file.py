"""Lock files: what servers offer, written so that a pull request shows what changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from adapter.commands.pin_status import ServerPinStatus, Unreadable, read_lock_file
from adapter.rules.tools.definitions import PinnedTool
from adapter.rules.tools.lock_file import write_lock

STDOUT = Path("-")


def export(found: Sequence[ServerPinStatus], output: Path | None, directory: Path, *, whole: bool) -> None:
    """Write what these servers offer: to ``output``, or to each one's own lock file, or one in ``directory``.

    ``whole``: nothing else is to stand in the files; otherwise their other servers stay as they are. Says what was
    written. Raises Unreadable, before anything is, unless it is a disk that fails.
    """
    files: dict[Path, dict[str, Mapping[str, PinnedTool]]] = {}
    for standing in found:
        if standing.now is None:
            raise Unreadable(f"{standing.entry.id}: {standing.now_trouble}")
        path = output or standing.entry.tools_lock or directory / "tools.lock"
        files.setdefault(path, {})[standing.entry.id] = standing.now.tools
    if output == STDOUT:
        print(write_lock(files[output]), end="")
        return
    texts = {
        path: write_lock(servers if whole or not path.exists() else {**read_lock_file(path), **servers})
        for path, servers in files.items()
    }
    for path, text in texts.items():
        _write(path, text.encode())
    for standing in found:
        if standing.entry.tools_lock is None and output is None:
            print(
                f"{standing.entry.id} does not use this lock file yet: add tools_lock: tools.lock to this server"
            )


def _write(path: Path, text: bytes) -> None:
    try:
        if path.exists() and path.read_bytes() == text:
            print(f"{path} is unchanged")
            return
        # An adapter that starts meanwhile finds the old file or the new one.
        target = path.resolve()
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            draft.write_bytes(text)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise Unreadable(f"{path} cannot be written: {error.strerror or error}") from None
    print(f"{path} is written")
