"""The reasons why a start failed, as the log has them and as one process tells another."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

MOST_OBSTACLES = 20
LONGEST_WHY = 1000
"""Characters: a list of hundred wrong keys is for the log and for ``mcp-adapter check``."""


class Obstacle(NamedTuple):
    """A reason why the adapter cannot start: ``event`` in a few words, ``why`` in one sentence with what to do."""

    event: str
    why: str
    setting: str


def obstacles_of(problems: Iterable[tuple[str, str]]) -> list[Obstacle]:
    """Problems of settings, each a path and a sentence, as reasons why the adapter cannot start."""
    return [Obstacle("the settings cannot be used", why, path) for path, why in problems]


class StartFailed(Exception):
    """The adapter could not start, for ``obstacles``, each of which has been reported."""

    def __init__(self, obstacles: Iterable[Obstacle]) -> None:
        self.obstacles = tuple(obstacles)
        super().__init__("; ".join(each.why for each in self.obstacles))


def encoded(obstacles: Iterable[Obstacle]) -> bytes:
    """The obstacles for another process of this program, in at most about 25 kB for ASCII."""
    told = [(each.event, each.why[:LONGEST_WHY], each.setting) for each in obstacles]
    return json.dumps(told[:MOST_OBSTACLES]).encode()


def decoded(text: bytes) -> tuple[Obstacle, ...]:
    """The obstacles that ``encoded`` has told; none where the teller was interrupted."""
    try:
        return tuple(Obstacle(*map(str, each)) for each in json.loads(text))
    except (ValueError, TypeError):
        return ()
