"""The problems of settings, and their places in the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Problem(NamedTuple):
    """One message about one place, such as ``servers[1].upstream.url``; an empty path is the whole file."""

    path: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}: {self.sentence}" if self.path else self.sentence


class SettingsError(Exception):
    """The settings cannot be used. ``str(error)`` has one line per problem, without secrets."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def spelled(location: Iterable[str | int]) -> str:
    """``("servers", 1, "id")`` as people write it: ``servers[1].id``."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path


def traced(problem: Problem, files: Mapping[str, str]) -> Problem:
    """The problem at the place where people wrote what is wrong.

    ``files`` says which file stands behind a place in the tree: ``servers[0].tools.define[2].use`` may be the
    ``use`` of ``tools/pay/config.yaml``.
    """
    for place, file in files.items():
        rest = problem.path.removeprefix(place)
        if rest == "":
            return Problem(file, problem.sentence)
        if rest != problem.path and rest[0] in ".[ ":
            return Problem(f"{file}: {rest.lstrip('. ')}", problem.sentence)
    return problem
