"""Sentences for operators about a process that could not be started: each names the setting to change."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from adapter.upstream.stdio.supervisor_link import StartRefused


def start_failure(refused: StartRefused, command: str, environment: Mapping[str, str], cwd: str) -> str:
    """Return one sentence, or two, about a refused start."""
    if refused.step == "cwd":
        return _of_cwd(refused.error, cwd)
    if refused.step == "command":
        return _of_command(refused.error, command, environment, cwd)
    if refused.error == 0:
        return "The process that starts servers was ended before it could start this one."
    return f"The system starts no process now: {os.strerror(refused.error)}."


def _of_cwd(error: int, cwd: str) -> str:
    if error == errno.ENOENT:
        return f"upstream.cwd: the folder {cwd!r} does not exist."
    if error == errno.ENOTDIR:
        return f"upstream.cwd: {cwd!r} is not a folder."
    return f"upstream.cwd: the folder {cwd!r} cannot be entered: {os.strerror(error)}."


def _of_command(error: int, command: str, environment: Mapping[str, str], cwd: str) -> str:
    if error in (errno.ENOENT, errno.ENOTDIR):
        return _of_missing(command, environment, cwd)
    if error == errno.EACCES:
        return f"upstream.command: {command!r} is not executable: set its permission (chmod +x)."
    if error == errno.ENOEXEC:
        return f"upstream.command: {command!r} is no program: a script needs a first line with #! and its interpreter."
    if error == errno.E2BIG:
        return "upstream.args and upstream.env are together longer than the system allows."
    return f"upstream.command: {command!r} cannot be executed: {os.strerror(error)}."


def _of_missing(command: str, environment: Mapping[str, str], cwd: str) -> str:
    # A script whose interpreter is missing fails like a missing script.
    is_path = "/" in command
    found = Path(cwd, command).exists() if is_path else shutil.which(command, path=_search_path(environment))
    if found:
        return f"upstream.command: {command!r} is there, but the interpreter in its first line is not."
    if is_path:
        return f"upstream.command: the file {command!r} does not exist."
    return (
        f"upstream.command: {command!r} was not found on PATH: install it, write its whole path, "
        "or set PATH in upstream.env."
    )


def _search_path(environment: Mapping[str, str]) -> str:
    return environment.get("PATH", os.defpath)
