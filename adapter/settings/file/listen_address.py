"""The address that settings mean which cannot be used, for a process that has to be found nevertheless."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adapter.settings.core import Core
from adapter.settings.file.yaml_text import interpolated, read_yaml
from adapter.settings.section import SettingsError

EVERYWHERE = "0.0.0.0"  # noqa: S104 - of a process that an orchestrator asks from outside
"""The host where the file cannot even be read."""


def listen_address(
    path: Path | None, overrides: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[str, int]:
    """``core.host`` and ``core.port`` as far as they can be read, in the order of ``load``: flags, variables, file.

    A value that is none is passed over. Raises nothing.
    """
    core, default = _core(path), Core.model_fields["host"].default
    variables = {name.upper(): text for name, text in environ.items()}
    hosts = [overrides.get("core.host"), variables.get("ADAPTER_CORE__HOST"), _filled(core, "host", environ)]
    ports = [overrides.get("core.port"), variables.get("ADAPTER_CORE__PORT"), _filled(core, "port", environ)]
    host = next((each for each in hosts if isinstance(each, str) and each), None)
    port = next((number for number in map(_port, ports) if number is not None), None)
    return host or (EVERYWHERE if core is None else default), port or Core.model_fields["port"].default


def _core(path: Path | None) -> dict[str, Any] | None:
    """The section, empty where there is none; None for a file that cannot be read."""
    try:
        core = {} if path is None else read_yaml(path).get("core")
    except SettingsError:
        return None
    return core if isinstance(core, dict) else {}


def _filled(core: dict[str, Any] | None, key: str, environ: Mapping[str, str]) -> object:
    try:
        return interpolated((core or {}).get(key), environ)
    except SettingsError:
        return None


def _port(value: object) -> int | None:
    text = str(value)
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    return number if 0 < number < 65536 else None
