"""Files that commands write for their users: whole or not at all, and through no link that somebody has planted."""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import stat
import time
from pathlib import Path

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READABLE, _PRIVATE = 0o666, 0o600


def write_new(path: Path, content: bytes, mode: int = _READABLE) -> None:
    """Write a file that does not exist. Raises FileExistsError where anything does, also a link; OSError."""
    number = os.open(path, _NEW, mode)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink()
        raise


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in place of the one that may be there, with its permissions. Raises OSError.

    Dotfiles are often links into a repository: where ``path`` is one, its file is written, and the link stays.
    """
    target = path.resolve()
    try:
        found = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    else:
        if not stat.S_ISREG(found):
            raise OSError(errno.EINVAL, "it is no regular file")
        mode = stat.S_IMODE(found)
    # Nobody knows the name before it is there, and until it has its own permissions, only its owner reads it.
    draft = target.with_name(f".{secrets.token_hex(8)}.part")
    write_new(draft, content, _READABLE if mode is None else _PRIVATE)
    try:
        if mode is not None:
            draft.chmod(mode)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def back_up(path: Path) -> Path:
    """Copy a file beside itself under a name of its own, with its permissions; returns that path. Raises OSError."""
    content, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    now = time.strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        backup = path.with_name(f"{path.name}.{now}{'' if number == 1 else f'-{number}'}.bak")
        try:
            write_new(backup, content, _PRIVATE)
        except FileExistsError:
            continue
        backup.chmod(mode)
        return backup
    raise AssertionError("numbers do not end")
