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
    """Write a file in place of the one that may be there, with its owner and permissions. Raises OSError.

    Dotfiles are often links into a repository: where ``path`` is one, its file is written, and the link stays.
    """
    target = path.resolve()
    try:
        found = target.stat()
    except FileNotFoundError:
        found = None
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    # Nobody knows the name before it is there, and until it has its own permissions, only its owner reads it.
    draft = target.with_name(f".{secrets.token_hex(8)}.part")
    write_new(draft, content, _READABLE if found is None else _PRIVATE)
    try:
        if found is not None:
            _make_alike(draft, found)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def refusal_to_write(path: Path, content: bytes, *, force: bool) -> str | None:
    """Write a file for a user, in place of another only if ``force``; the sentence that tells why it was not."""
    try:
        (replace_file if force else write_new)(path, content)
    except FileExistsError:
        return f"{path} exists: use --force to overwrite it, or name another file"
    except OSError as error:
        return f"{path} cannot be written: {error.strerror or error}"
    return None


def back_up(path: Path) -> Path:
    """Copy a file beside itself under a name of its own, with its permissions; returns that path. Raises OSError."""
    content, found = path.read_bytes(), path.stat()
    now = time.strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        backup = path.with_name(f"{path.name}.{now}{'' if number == 1 else f'-{number}'}.bak")
        try:
            write_new(backup, content, _PRIVATE)
        except FileExistsError:
            continue
        _make_alike(backup, found)
        return backup
    raise AssertionError("numbers do not end")


def _make_alike(path: Path, found: os.stat_result) -> None:
    """Give a file the owner and the permissions of another."""
    own = path.stat()
    if os.geteuid() == 0 and (own.st_uid, own.st_gid) != (found.st_uid, found.st_gid):
        # Under sudo the file would be root's, and its client could read it no more.
        os.chown(path, found.st_uid, found.st_gid)
    path.chmod(stat.S_IMODE(found.st_mode))
