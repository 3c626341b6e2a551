"""Tables of states as people read them, compared with those of the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeVar

import pytest

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


def assert_is_printed(
    printed: str,
    states: type[S],
    events: type[E],
    transitions: Mapping[tuple[S, E], S],
    advance: Callable[[S, E], S],
) -> None:
    """Every pair of a state and an event has its cell in the printed table; one that is empty there raises."""
    heading, *lines = (line.split() for line in printed.strip().splitlines())
    cells = {
        (states(state), events(event)): cell
        for state, *row in lines
        for event, cell in zip(heading, row, strict=True)
    }
    assert len(cells) == len(states) * len(events)
    assert set(transitions) == {pair for pair, cell in cells.items() if cell != "-"}
    for pair, cell in cells.items():
        if cell == "-":
            with pytest.raises(KeyError):
                advance(*pair)
        else:
            assert advance(*pair) is states(cell)
