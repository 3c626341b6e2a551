"""Reading YAML, and putting environment variables into its strings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from adapter.settings.section import Problem, SettingsError, spelled

_PLACEHOLDER = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")

Location = tuple[str | int, ...]


def with_policies(tree: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """The tree with the variables of every ``auth.policy`` of its servers, and those that are not set.

    What a variable holds is not looked at again.
    """
    gaps: list[Problem] = []
    servers = _Filling(environ, gaps).sought(tree.get("servers"), ("servers",))
    return {**tree, "servers": servers}, gaps


class _Filling:
    """One walk over a tree."""

    def __init__(self, environ: Mapping[str, str], gaps: list[Problem]) -> None:
        self._environ = environ
        self._gaps = gaps

    def sought(self, value: Any, location: Location) -> Any:
        """The value, with each policy in it filled in."""
        if location[-2:] == ("auth", "policy"):
            return self._filled(value, location)
        if isinstance(value, dict):
            return {key: self.sought(member, (*location, str(key))) for key, member in value.items()}
        if isinstance(value, list):
            return [self.sought(member, (*location, index)) for index, member in enumerate(value)]
        return value

    def _filled(self, value: Any, location: Location) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(member, (*location, str(key))) for key, member in value.items()}
        if isinstance(value, list):
            return [self._filled(member, (*location, index)) for index, member in enumerate(value)]
        if isinstance(value, str):
            return _PLACEHOLDER.sub(lambda found: self._variable(found[1], location), value)
        return value

    def _variable(self, name: str, location: Location) -> str:
        if name not in self._environ:
            self._gaps.append(Problem(spelled(location), f"the environment variable {name} is not set"))
        return self._environ.get(name, "")


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


def interpolated(value: Any, environ: Mapping[str, str]) -> Any:
    """The same tree with ``${VAR}`` and ``${VAR:-default}`` filled in. Raises SettingsError naming all gaps.

    As in a shell, ``:-`` also counts for a variable that is set to nothing.
    """
    if gaps := list(_gaps(value, environ, ())):
        raise SettingsError(gaps)
    return _filled(value, environ)


def _gaps(value: Any, environ: Mapping[str, str], location: tuple[str | int, ...]) -> Iterator[Problem]:
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _gaps(member, environ, (*location, str(key)))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _gaps(member, environ, (*location, index))
    elif isinstance(value, str):
        for name, default, end in (found.groups() for found in _VARIABLE.finditer(value)):
            if end and name not in environ and default is None:
                sentence = f"the environment variable {name} is not set, and ${{{name}}} has no default"
                yield Problem(spelled(location), sentence)


def _filled(value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(member, environ) for key, member in value.items()}
    if isinstance(value, list):
        return [_filled(member, environ) for member in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _meant(found, environ), value)
    return value


def _meant(found: re.Match[str], environ: Mapping[str, str]) -> str:
    return environ.get(found[1]) or found[2] or "" if found[3] else found[0]
