"""Reading YAML, and putting environment variables into its strings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from adapter.settings.core import Core
from adapter.settings.section import Problem, SettingsError, spelled

_PLACEHOLDER = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")

Location = tuple[str | int, ...]


# One that is not closed is read to the end of the text, once, and means itself.
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*+)(?>:-([^}]*+)|)(\}|\Z)")


class _OnceOnly(yaml.SafeLoader):
    """Loader that refuses repeated keys, which YAML would accept silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value} occurs twice here", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read_yaml(path: Path, keys: str = "sections such as core and servers") -> dict[str, Any]:
    """The mapping a file holds, of ``keys``; an empty file is an empty mapping. Raises SettingsError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError([Problem(str(path), "there is no such file")]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([Problem(str(path), f"cannot be read: {error}")]) from None
    try:
        # A SafeLoader underneath: it builds plain values only.
        found = yaml.load(text, Loader=_OnceOnly)  # noqa: S506 - _OnceOnly is a SafeLoader
    except yaml.YAMLError as error:
        raise SettingsError([Problem(str(path), f"is not valid YAML: {_told(error)}")]) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError([Problem(str(path), f"must contain a mapping of {keys}")])
    return found


def _told(error: yaml.YAMLError) -> str:
    """One line without the excerpt, which might show a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        if mark.buffer is not None and mark.buffer[max(0, mark.pointer - 1) :].startswith("${"):
            return f'within {{ }} or [ ] a variable needs quotes, as in {{port: "${{PORT}}"}}, line {mark.line + 1}'
        return f"{error.problem}, line {mark.line + 1}, column {mark.column + 1}"
    return "it cannot be parsed"


def as_value(text: str) -> object:
    """The value a flag or an environment variable means: ``[…]``, ``{…}`` and null as YAML, else the text."""
    if text.strip() in ("null", "~") or text.lstrip()[:1] in ("[", "{"):
        try:
            found: object = yaml.safe_load(text)
        except yaml.YAMLError:
            return text
        return found
    return text


# --- variables --------------------------------------------------------------------------------------------------


def interpolated(value: Any, environ: Mapping[str, str]) -> Any:
    """The same tree with ``${VAR}`` and ``${VAR:-default}`` filled in. Raises SettingsError naming all gaps.

    As in a shell, ``:-`` also counts for a variable that is set to nothing.
    """
    gaps: list[Problem] = []

    def filled(text: str, location: Location) -> str:
        def meant(found: re.Match[str]) -> str:
            name, default, end = found.groups()
            if not end:
                return found[0]
            if name not in environ and default is None:
                sentence = f"the environment variable {name} is not set, and ${{{name}}} has no default"
                gaps.append(Problem(spelled(location), sentence))
            return environ.get(name) or default or ""

        return _VARIABLE.sub(meant, text)

    tree = _changed(value, filled)
    if gaps:
        raise SettingsError(gaps)
    return tree


def with_policies(tree: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The tree with the variables of every ``auth.policy`` of its servers. Raises SettingsError naming all gaps.

    What a variable holds is not looked at again.
    """
    gaps: list[Problem] = []

    def filled(text: str, location: Location) -> str:
        def meant(found: re.Match[str]) -> str:
            if found[1] not in environ:
                gaps.append(Problem(spelled(location), f"the environment variable {found[1]} is not set"))
            return environ.get(found[1], "")

        return _PLACEHOLDER.sub(meant, text) if ("auth", "policy") in pairwise(location) else text

    servers = _changed(tree.get("servers"), filled, ("servers",))
    if gaps:
        raise SettingsError(gaps)
    return {**tree, "servers": servers}


def _changed(value: Any, change: Callable[[str, Location], str], location: Location = ()) -> Any:
    """The same tree with each text in it changed; keys stay."""
    if isinstance(value, dict):
        return {key: _changed(member, change, (*location, str(key))) for key, member in value.items()}
    if isinstance(value, list):
        return [_changed(member, change, (*location, index)) for index, member in enumerate(value)]
    return change(value, location) if isinstance(value, str) else value


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
