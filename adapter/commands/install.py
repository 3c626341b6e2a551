"""``mcp-adapter install``: tell an MCP client of servers behind the adapter, in its own file, or take them out."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from adapter.commands.command_parser import failed, load_settings, local_address, servers_named
from adapter.commands.file_writing import back_up, replace_file
from adapter.extras import is_installed, missing_extras, own_command
from adapter.rules.clients.client_file import CannotEdit, entry_text, with_entry, without_entry
from adapter.rules.clients.mcp_clients import (
    CLIENTS,
    USUAL_VARIABLE,
    ClientFile,
    McpClient,
    ServerAddress,
    placeholder,
)
from adapter.settings.root import Settings

OK, FAILED = 0, 1

MOST_BYTES = 64 << 20
"""Of a client's file. Some keep their conversations in it."""


def path_of(file: ClientFile) -> Path:
    """The path of a client's file for this user on this machine, in this working directory."""
    home = Path.home()
    if sys.platform == "darwin":
        config = home / "Library" / "Application Support"
    else:
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return {"home": home, "config": config, "project": Path()}[file.folder] / file.path


def _addresses(options: argparse.Namespace) -> list[ServerAddress]:
    if options.remove and options.name is not None:
        return [ServerAddress(options.name, "")]
    if options.url is not None:
        name = options.name or options.url.rstrip("/").rpartition("/")[2]
        return [ServerAddress(name, options.url, options.token_variable)]
    return addresses_of(load_settings(options), options.server, options.token_variable)


def _unusable(options: argparse.Namespace) -> str | None:
    """What is wrong with flags of which the client would say no more than that the server does not start."""
    if (options.folder or options.save_to) and not _starts_connect(options):
        return "--folder and --save-to belong to --stdio"
    if options.url is not None and not options.url.lower().startswith(("http://", "https://")):
        return f"--url {options.url} is no address: it begins with https:// or http://"
    if options.stdio and (missing := missing_extras("client")):
        return f"mcp-adapter connect, which --stdio starts, {missing}"
    if options.deny and not options.folder:
        return "--deny belongs to --folder"
    if (folder := next((each for each in options.folder if not each.is_dir()), None)) is not None:
        return f"--folder {folder} is no folder: name one that is there"
    return None


def _starts_connect(options: argparse.Namespace) -> bool:
    """Tell whether the entry starts this program; without being asked where the client needs one, and this can."""
    starts: bool = options.stdio
    return starts or (not CLIENTS[options.client].opens_urls and is_installed("client"))


def _connecting(url: str, options: argparse.Namespace) -> tuple[str, ...]:
    """The command that reaches an address over stdio, from whatever folder the client starts it in."""
    flags = [word for folder in options.folder for word in ("--folder", str(folder.absolute()))]
    flags += [word for pattern in options.deny for word in ("--deny", pattern)]
    if options.save_to is not None:
        flags += ["--save-to", str(options.save_to.absolute())]
    return (*own_command(), "connect", url, *flags)


def addresses_of(settings: Settings, server: str | None, variable: str | None) -> list[ServerAddress]:
    """The merged mounts of the settings and the servers that none of them has, or the one of this id.

    ``variable`` has the token where the adapter asks for one.

    Where people sign in instead, no variable is used unless it is named: clients find out by themselves where.

    Raises SettingsError for an id that neither a server nor a mount has.
    """
    core = settings.core
    usual = USUAL_VARIABLE if core.auth.has_static_tokens else None
    token = (variable or usual) if core.auth.enabled else None
    base = core.public_base_url or f"http://{local_address(settings)}"
    mounts = [mount for mount in settings.mounts if server in (None, mount.id)]
    paths = {mount.id: mount.path for mount in mounts}
    if server is None or not mounts:
        merged = {entry.id for mount in mounts for entry in settings.members_of(mount)}
        paths |= {
            entry.id: entry.mount_path for entry in servers_named(settings, server) if entry.id not in merged
        }
    return [ServerAddress(name, f"{base.rstrip('/')}{path}", token) for name, path in paths.items()]


def run(options: argparse.Namespace) -> int:
    """Show the change, ask, keep a backup and write. Return the exit status, 1 where nothing could be written."""
    if not options.remove and (why := _unusable(options)) is not None:
        return failed(why, FAILED)
    addresses = _addresses(options)
    if _starts_connect(options):
        addresses = [each._replace(command=_connecting(each.url, options)) for each in addresses]
    client = CLIENTS[options.client]
    # Dotfiles are often links into a repository: the file is edited, the link stays.
    file = (options.file or path_of(client.file)).resolve()
    try:
        old = _read(file)
        new = _edited(old, client, addresses, options)
    except (CannotEdit, OSError, UnicodeDecodeError) as failure:
        if options.remove:
            names = ", ".join(address.name for address in addresses)
            print(f"mcp-adapter: {file} is not edited: {failure}. Remove {names} yourself.", file=sys.stderr)
            return FAILED
        return _tell_by_hand(client, file, addresses, str(failure))
    if new == old:
        print(f"{file} has no such entry." if options.remove else f"{file} is up to date.")
        return OK
    print("".join(_difference(file, old, new)), end="")
    if options.print:
        return OK
    if not (options.yes or _agreed(file)):
        return FAILED
    if not _written(file, old, new):
        return FAILED
    _tell(client, addresses, options)
    return OK


def _read(file: Path) -> str:
    """The text of a file, empty where there is none. Raises OSError, CannotEdit, and UnicodeDecodeError."""
    if not file.exists():
        return ""
    if not file.is_file():
        raise CannotEdit("it is no regular file")
    # As bytes, since reading text would change the ends of lines.
    with file.open("rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise CannotEdit(f"it has more than {MOST_BYTES} bytes")
    return content.decode()


def _edited(
    text: str, client: McpClient, addresses: Sequence[ServerAddress], options: argparse.Namespace
) -> str:
    for address in addresses:
        if options.remove:
            text = without_entry(text, client.format, client.keys, address.name)
        else:
            text = with_entry(text, client.format, client.keys, address.name, client.entry(address))
    return text


def _difference(file: Path, old: str, new: str) -> list[str]:
    lines = [text.splitlines(keepends=True) for text in (old, new)]
    return list(difflib.unified_diff(lines[0], lines[1], str(file) if old else "new file", str(file)))


def _agreed(file: Path) -> bool:
    if not sys.stdin.isatty():
        print("mcp-adapter: nothing was written; pass --yes to write without being asked", file=sys.stderr)
        return False
    return input(f"Write {file}? [y/N] ").strip().lower() in ("y", "yes")


def _written(file: Path, old: str, text: str) -> bool:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            print(f"The file as it was: {back_up(file)}")
        # Clients write their files too, also while a person reads the question.
        if _read(file) != old:
            raise CannotEdit("it has just been changed. Try again")
        replace_file(file, text.encode())
    except (CannotEdit, OSError, UnicodeDecodeError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else failure
        print(f"mcp-adapter: {file} cannot be written: {why}", file=sys.stderr)
        return False
    return True


def _tell(client: McpClient, addresses: Sequence[ServerAddress], options: argparse.Namespace) -> None:
    names = ", ".join(address.name for address in addresses)
    if options.remove:
        print(f"{client.title} no longer knows {names}. Start it again.")
        return
    print(f"{client.title} knows {names} now. {client.note}")
    for variable in {address.token for address in addresses if address.token}:
        if client.expands:
            print(f"It reads the adapter's token from {variable}: set that where {client.title} starts.")
        else:
            print(f"Put the adapter's token in place of {placeholder(variable)} in the file.")


def _tell_by_hand(client: McpClient, file: Path, addresses: Sequence[ServerAddress], why: str) -> int:
    print(f"mcp-adapter: {file} is not edited: {why}. Add this yourself:\n", file=sys.stderr)
    for address in addresses:
        print(entry_text(client.format, client.keys, address.name, client.entry(address)))
    return FAILED
