"""``mcp-adapter install``: tell an MCP client of servers behind the adapter, in the client's own file."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from adapter.rules.clients.client_file import CannotEdit, entry_text, with_entry
from adapter.rules.clients.mcp_clients import (
    CLIENTS,
    USUAL_VARIABLE,
    ClientFile,
    McpClient,
    ServerAddress,
    placeholder,
)
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError

OK, FAILED = 0, 1


class InstallOptions(NamedTuple):
    """``file`` is used in place of the client's usual one. ``only_print``: nothing is written."""

    client: str
    file: Path | None = None
    only_print: bool = False
    yes: bool = False


def path_of(file: ClientFile) -> Path:
    """The path of a client's file for this user on this machine, in this working directory."""
    home = Path.home()
    if sys.platform == "darwin":
        config = home / "Library" / "Application Support"
    else:
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return {"home": home, "config": config, "project": Path()}[file.folder] / file.path


def addresses_of(settings: Settings, server: str | None, variable: str | None) -> list[ServerAddress]:
    """The servers of the settings, or the one of this id. ``variable`` has the token where the adapter asks for one.

    Where people sign in instead, no variable is used unless it is named: clients find out by themselves where.

    Raises SettingsError for an id that no server has.
    """
    core = settings.core
    usual = USUAL_VARIABLE if core.auth.has_static_tokens else None
    token = (variable or usual) if core.auth.enabled else None
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(core.host, core.host)  # noqa: S104 (nothing is bound here)
    base = core.public_base_url or f"http://{f'[{host}]' if ':' in host else host}:{core.port}"
    found = [
        ServerAddress(entry.id, f"{base.rstrip('/')}{entry.mount_path}", token)
        for entry in settings.servers
        if server in (None, entry.id)
    ]
    if not found:
        known = ", ".join(entry.id for entry in settings.servers)
        raise SettingsError([Problem("--server", f"no server has the id {server}; there are {known}")])
    return found


def run(addresses: Sequence[ServerAddress], options: InstallOptions) -> int:
    """Show the change, ask, keep a backup and write. Return the exit status, 1 where nothing could be written."""
    client = CLIENTS[options.client]
    # Dotfiles are often links into a repository: the file is edited, the link stays.
    file = (options.file or path_of(client.file)).resolve()
    try:
        old = file.read_text("utf-8") if file.exists() else ""
        new = old
        for address in addresses:
            new = with_entry(new, client.format, client.keys, address.name, client.entry(address))
    except (CannotEdit, OSError, UnicodeDecodeError) as failure:
        return _tell_by_hand(client, file, addresses, str(failure))
    if new == old:
        print(f"{file} is up to date.")
        return OK
    print("".join(_difference(file, old, new)), end="")
    if options.only_print:
        return OK
    if not (options.yes or _agreed(file)):
        return FAILED
    return _written(client, file, new, addresses)


def _difference(file: Path, old: str, new: str) -> list[str]:
    lines = [text.splitlines(keepends=True) for text in (old, new)]
    return list(difflib.unified_diff(lines[0], lines[1], str(file) if old else "new file", str(file)))


def _agreed(file: Path) -> bool:
    if not sys.stdin.isatty():
        print("mcp-adapter: nothing was written; pass --yes to write without being asked", file=sys.stderr)
        return False
    return input(f"Write {file}? [y/N] ").strip().lower() in ("y", "yes")


def _written(client: McpClient, file: Path, text: str, addresses: Sequence[ServerAddress]) -> int:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            backup = file.with_name(f"{file.name}.{time.strftime('%Y%m%d-%H%M%S')}.bak")
            shutil.copy2(file, backup)
            print(f"The file as it was: {backup}")
        _replace(file, text)
    except OSError as failure:
        print(f"mcp-adapter: {file} cannot be written: {failure.strerror}", file=sys.stderr)
        return FAILED
    names = ", ".join(address.name for address in addresses)
    print(f"{client.title} knows {names} now. {client.note}")
    for variable in {address.token for address in addresses if address.token}:
        if client.expands:
            print(f"It reads the adapter's token from {variable}: set that where {client.title} starts.")
        else:
            print(f"Put the adapter's token in place of {placeholder(variable)} in the file.")
    return OK


def _replace(file: Path, text: str) -> None:
    """Write the file at once or not at all, with its permissions."""
    part = file.with_name(f".{file.name}.part")
    part.write_text(text, "utf-8")
    if file.exists():
        shutil.copymode(file, part)
    part.replace(file)


def _tell_by_hand(client: McpClient, file: Path, addresses: Sequence[ServerAddress], why: str) -> int:
    print(f"mcp-adapter: {file} is not edited: {why}. Add this yourself:\n", file=sys.stderr)
    for address in addresses:
        print(entry_text(client.format, client.keys, address.name, client.entry(address)))
    return FAILED
