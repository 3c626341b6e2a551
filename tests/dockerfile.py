"""Dockerfiles as lists of instructions, and the files of a build context that a ``.dockerignore`` lets through."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

SPLIT = re.compile(r"\s+")


class Instruction(NamedTuple):
    """One instruction: its word in capitals, and the rest with continued lines joined."""

    word: str
    rest: str


class Stage(NamedTuple):
    """The instructions after one FROM. ``name`` is empty for a stage without AS."""

    base: str
    name: str
    steps: list[Instruction]


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, without comments."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    for line in joined.splitlines():
        if line.strip():
            word, rest = SPLIT.split(line.strip(), maxsplit=1)
            yield Instruction(word.upper(), rest.strip())


def stages(text: str) -> list[Stage]:
    """The stages of a Dockerfile; an ARG before the first FROM belongs to none.

    One that begins from an earlier stage has the steps of that too.
    """
    found: list[Stage] = []
    for step in instructions(text):
        if step.word == "FROM":
            base, _, name = step.rest.partition(" AS ")
            before = next((each for each in found if each.name == base.strip()), Stage(base.strip(), "", []))
            found.append(Stage(before.base, name.strip(), [*before.steps]))
        elif found:
            found[-1].steps.append(step)
    return found


def last(stage: Stage, word: str) -> str:
    """The rest of the last such instruction. Raises IndexError without one."""
    return [step.rest for step in stage.steps if step.word == word][-1]


def let_through(files: Iterable[str], ignored: str) -> list[str]:
    """The files that a build gets. Of the patterns in ``.dockerignore`` the last one that fits decides.

    Only the forms that are used here are known: a name or path, ``*``, ``**/`` at the beginning, ``!``.
    """
    patterns = [line for line in ignored.splitlines() if line and not line.startswith("#")]
    return [file for file in files if _passes(file, patterns)]


def _passes(file: str, patterns: list[str]) -> bool:
    passes = True
    for pattern in patterns:
        keeps, bare = pattern.startswith("!"), pattern.removeprefix("!")
        if _fits(file, bare):
            passes = keeps
    return passes


def _fits(file: str, pattern: str) -> bool:
    """A pattern that fits a folder fits everything in it."""
    parts = file.split("/")
    if pattern.startswith("**/"):
        return any(fnmatchcase(part, pattern.removeprefix("**/")) for part in parts)
    return any(
        fnmatchcase("/".join(parts[:end]), pattern) and pattern.count("/") == end - 1
        for end in range(1, len(parts) + 1)
    )
