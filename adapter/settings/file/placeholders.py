"""``{{ env.NAME }}`` in the policies of auth: filled in at load, so that no placeholder is taken for a key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from adapter.settings.problems import Problem, spelled

_VARIABLE = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")

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
            return _VARIABLE.sub(lambda found: self._variable(found[1], location), value)
        return value

    def _variable(self, name: str, location: Location) -> str:
        if name not in self._environ:
            self._gaps.append(Problem(spelled(location), f"the environment variable {name} is not set"))
        return self._environ.get(name, "")
