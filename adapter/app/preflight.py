"""Looks at the machine before the start: the port, the directories that must be writable, and their other users.

Each look ends at once and changes nothing but missing directories, which the start would create too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from adapter.edge.http.seats import open_sockets
from adapter.extras import missing_extras
from adapter.settings.root import Settings
from adapter.startup.failure import Obstacle
from adapter.state.lock_file import lock_path, make_private


class Unusable(NamedTuple):
    """The ``reason`` why something cannot be used, and the ``advice``, one of several maybe. No full stops."""

    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.advice}"


class RootLock(Enum):
    """The lock of a store of files: nobody has it, another process has it, or the file system has no locks."""

    FREE = "free"
    TAKEN = "taken"
    NONE = "none"


def obstacles(settings: Settings) -> Iterator[Obstacle]:
    """Find everything that would make the start fail."""
    yield from missing_libraries(settings)
    port = port_refusal(settings.core.host, settings.core.port)
    if port is not None:
        yield Obstacle("cannot listen", str(port), "core.port")
    files = any(server.has_files for server in settings.servers)
    if files and (refusal := directory_refusal(settings.storage.root)) is not None:
        why = f"storage.root cannot be created or opened. {refusal}, or set another storage.root"
        yield Obstacle("the store of files cannot be used", why, "storage.root")
        return
    if settings.state_persistence.type == "disk":
        refusal = directory_refusal(settings.state_path.parent, private=True)
        setting = settings.state_file_setting
        if refusal is not None:
            yield Obstacle("the state store cannot be used", f"{refusal}, or set another {setting}", setting)


def missing_libraries(settings: Settings) -> Iterator[Obstacle]:
    """Find the extras of the package that the settings need and this installation does not have."""
    for setting, extra in dict(_needed_extras(settings)).items():
        if (sentence := missing_extras(extra)) is not None:
            yield Obstacle("a library is not installed", sentence, setting)


def _needed_extras(settings: Settings) -> Iterator[tuple[str, str]]:
    """Those of telemetry and of databases are looked for where they are used."""
    if settings.core.auth.oauth is not None:
        yield "core.auth.oauth", "oauth"
    for index, server in enumerate(settings.servers):
        if server.upstream.auth.type != "none":
            yield f"servers[{index}].upstream.auth", "oauth"
        if server.hosts.openai_file_params == "on":
            yield f"servers[{index}].hosts.openai_file_params", "http"
    if settings.asks_for_plans:
        yield "servers", "hosted"
    if settings.console.enabled:
        yield "console.enabled", "hosted"


def warnings(settings: Settings) -> Iterator[Obstacle]:
    """Find everything that may make the start fail, or a later one."""
    files = any(server.has_files for server in settings.servers)
    root = settings.storage.root
    if (
        files
        and (lock := settings.root_lock) is not None
        and lock_of(root, shared=lock == "shared") is RootLock.TAKEN
    ):
        why = f"waiting for it to end; stop it, or set another storage.root than {root}"
        yield Obstacle("another adapter uses storage.root", why, "storage.root")
    yield from _state_file_users(settings)
    if os.geteuid() == 0 and (files or settings.state_persistence.type == "disk") and (owner := _owner(root)):
        why = f"user {owner} owns {root} and cannot change files that root makes there; run as that user"
        yield Obstacle("running as root", why, "storage.root")


def _state_file_users(settings: Settings) -> Iterator[Obstacle]:
    """Find an adapter that has locked the state file, and others who could replace it."""
    path, setting = settings.state_file, settings.state_file_setting
    if path is None:
        return
    if _is_open_to_all(path.parent):
        why = f"they can put another file in its place; take that away from them: chmod o-w {path.parent}"
        yield Obstacle("all users may write into the folder of the state file", why, setting)
    if _look_at(lock_path(path), shared=False) is RootLock.TAKEN:
        why = f"waiting for it to end; stop it, or set another {setting} than {path}"
        yield Obstacle("another adapter uses the state file", why, setting)


# --- the port ---------------------------------------------------------------------------------------------------


def port_refusal(host: str, port: int) -> Unusable | None:
    """Find the reason why nobody can listen there, None if it is free."""
    try:
        for opened in open_sockets(host, port):
            opened.close()
    except (socket.gaierror, UnicodeError):
        return Unusable(
            f"no address belongs to the name {host}", "set core.host to an address of this machine"
        )
    except OSError as error:
        return _refusal(error, host, port)
    return None


def _refusal(error: OSError, host: str, port: int) -> Unusable:
    match error.errno:
        case errno.EADDRINUSE:
            advice = f"stop the program that listens on {host}:{port}, or choose another with --port"
            return Unusable("the port is taken", advice)
        case errno.EACCES:
            return Unusable(f"this user may not listen on port {port}", "choose one above 1023 with --port")
        case errno.EADDRNOTAVAIL:
            return Unusable(f"{host} is no address of this machine", "set core.host to one of its own")
        case _:
            reason = f"{host}:{port} cannot be used ({error.strerror or error})"
            return Unusable(reason, "set core.host and core.port to others")


# --- directories ------------------------------------------------------------------------------------------------


def directory_refusal(directory: Path, *, private: bool = False) -> Unusable | None:
    """Find the reason why no file can be made in the directory, with half of the advice; None if one can.

    Where it is missing it is made, for its owner alone if it is ``private``.
    """
    try:
        if private:
            make_private(directory)
        else:
            directory.mkdir(parents=True, exist_ok=True)
        # Only making a file tells: access rights are not all that may forbid it.
        probe = directory / f".probe-{os.getpid()}"
        probe.touch(exist_ok=True)
        probe.unlink(missing_ok=True)
        return None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            # What is there can be served from a full disk, and space may come back.
            return None
        user = _name_of(os.geteuid())
        if isinstance(error, FileExistsError | NotADirectoryError):
            return Unusable(f"{directory} is no directory", "remove the file that is in its place")
        if error.errno in (errno.EACCES, errno.EPERM):
            reason = f"{directory} is not writable for the user {user}"
            return Unusable(reason, "let that user write there")
        reason = f"{directory} cannot be written ({error.strerror or error})"
        return Unusable(reason, "mount a disk that can")


def lock_of(root: Path, *, shared: bool, create: bool = False) -> RootLock:
    """Look at the lock of the store of files: taken is one that another process holds and that is not ``shared`` with
    it. Where it was never taken it is free, unless ``create`` makes its file.
    """
    return _look_at(root / "lock", shared=shared, create=create)


def _look_at(file: Path, *, shared: bool, create: bool = False) -> RootLock:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        number = os.open(file, flags, 0o600)
    except OSError:
        return RootLock.FREE
    try:
        fcntl.flock(number, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return RootLock.TAKEN
    except OSError:
        return RootLock.NONE
    finally:
        os.close(number)
    return RootLock.FREE


def _is_open_to_all(directory: Path) -> bool:
    """Tell whether every user may replace what lies in the directory, as nobody may in /tmp. It is its operator's to
    change: a volume may be made so on purpose.
    """
    try:
        mode = directory.stat().st_mode
    except OSError:
        return False
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _owner(root: Path) -> str | None:
    """The user who owns the directory, None for root and for no directory."""
    try:
        number = root.stat().st_uid
    except OSError:
        return None
    return _name_of(number) if number else None


def _name_of(number: int) -> str:
    # Late: few starts ask for the name of a user.
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
