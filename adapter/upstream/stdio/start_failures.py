"""Sentences for operators about a process that could not be started: each names the setting to change."""

from __future__ import annotations

import errno
import json
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
    reason = missing_program(command, environment, cwd)
    return f"upstream.command: {reason or f'{command!r} is there, but the interpreter in its first line is not.'}"


def missing_program(command: str, environment: Mapping[str, str], cwd: str) -> str | None:
    """Return one sentence about a program that is not there, None for one that is."""
    if _is_there(command, environment, cwd):
        return None
    is_path = "/" in command
    missing = f"the file {command!r} does not exist" if is_path else f"{command!r} was not found on PATH"
    program, *arguments = command.split() or [command]
    # A name has no blanks, but the path of a program may.
    if arguments and (not is_path or _is_there(program, environment, cwd)):
        listed = json.dumps(arguments, ensure_ascii=False)
        return f"{missing}: write {program!r} there, and its arguments in upstream.args: {listed}."
    if is_path:
        return f"{missing}."
    return f"{missing}: install it, write its whole path, or set PATH in upstream.env."


def _is_there(command: str, environment: Mapping[str, str], cwd: str) -> bool:
    if "/" in command:
        return Path(cwd, command).exists()
    return shutil.which(command, path=environment.get("PATH", os.defpath)) is not None
