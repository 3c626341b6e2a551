"""The flags that name and override settings, and the settings that they mean."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adapter.settings.root import Settings
    from adapter.settings.servers.server import ServerSettings

VARIABLE = "MCP_ADAPTER_CONFIG"
"""The environment variable that names the settings file."""

DEFAULT = Path("config.yaml")
"""The settings file where none is named: one in the working directory."""

_NO_FILE = (
    f"there is no {DEFAULT} here: mcp-adapter init writes one, and --config or {VARIABLE} names another"
)


def add_settings_flags(command: argparse.ArgumentParser) -> None:
    """Add ``--config`` and the flags that override settings."""
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"the settings file (default: ${VARIABLE}, or {DEFAULT} in the working directory)",
    )
    command.add_argument("--host", metavar="H", help="overrides core.host")
    command.add_argument("--port", metavar="P", help="overrides core.port")
    command.add_argument("--log-level", metavar="L", help="overrides core.log_level")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="overrides any setting, for example --set sessions.max_active=100; may be repeated",
    )


def load_settings(arguments: argparse.Namespace) -> Settings:
    """The settings that the flags of ``add_settings_flags`` mean. Raises SettingsError.

    Where no file is named, the one that is found becomes ``arguments.config``, and standard error says so.
    """
    from adapter.settings.file.load import load
    from adapter.settings.section import Problem, SettingsError

    overrides = overrides_of(arguments)
    if arguments.config is None:
        arguments.config = _found()
    try:
        return load(arguments.config, overrides=overrides)
    except SettingsError as refused:
        if arguments.config is None and any(problem.path == "servers" for problem in refused.problems):
            raise SettingsError([*refused.problems, Problem("", _NO_FILE)]) from None
        raise


def servers_named(settings: Settings, server: str | None) -> list[ServerSettings]:
    """The servers of the settings, or the one of this id (``--server``). Raises SettingsError where there is none."""
    found = [each for each in settings.servers if server in (None, each.id)]
    if not found:
        from adapter.settings.section import Problem, SettingsError

        known = ", ".join(each.id for each in settings.servers)
        raise SettingsError([Problem("--server", f"no server has the id {server}; there are {known}")])
    return found


def local_address(settings: Settings) -> str:
    """Host and port at which this machine reaches the adapter."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.core.host, settings.core.host)  # noqa: S104 (nothing is bound here)
    return f"{f'[{host}]' if ':' in host else host}:{settings.core.port}"


def failed(why: str, status: int = 1) -> int:
    """Tell on standard error why a command fails; returns its exit status."""
    print(f"mcp-adapter: {why}", file=sys.stderr)
    return status


def settings_error() -> type[Exception]:
    """SettingsError. Only a command that failed asks for it; the others need not load the classes of settings."""
    from adapter.settings.section import SettingsError

    return SettingsError


def settings_file() -> Path | None:
    """The settings file of the environment or of the working directory, None if there is neither."""
    named = os.environ.get(VARIABLE, "").strip()
    if named:
        return Path(named)
    return DEFAULT if DEFAULT.exists() else None


def _found() -> Path | None:
    """The same; standard error says which one it is."""
    found = settings_file()
    if found is not None:
        where = f", which {VARIABLE} names" if os.environ.get(VARIABLE, "").strip() else " in this folder"
        print(f"mcp-adapter: using {found}{where}", file=sys.stderr)
    return found


def overrides_of(arguments: argparse.Namespace) -> dict[str, str]:
    from adapter.settings.section import Problem, SettingsError

    overrides: dict[str, str] = {}
    for text in arguments.settings:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise SettingsError([Problem("--set", f"write KEY=VALUE; {key or 'this'} has no value")])
        overrides[key.strip()] = value
    for key in ("host", "port", "log_level"):
        value = getattr(arguments, key)
        if value is not None:
            overrides[f"core.{key}"] = value
    return overrides
