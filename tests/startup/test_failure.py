"""Reasons of a failed start, on their way from one process to another."""

from __future__ import annotations

import pytest

from adapter.startup.failure import (
    LONGEST_WHY,
    MOST_OBSTACLES,
    Obstacle,
    StartFailed,
    decoded,
    encoded,
    obstacles_of,
)

TAKEN = Obstacle("cannot listen", "the port is taken: stop the other program", "core.port")


def test_the_reasons_are_the_sentence() -> None:
    """A failed start names every reason in one line."""
    assert str(StartFailed([TAKEN, *obstacles_of([("core.host", "must not be empty")])])) == (
        "the port is taken: stop the other program; must not be empty"
    )


def test_another_process_hears_the_same() -> None:
    """What a worker tells, its supervisor reads."""
    assert decoded(encoded([TAKEN, TAKEN])) == (TAKEN, TAKEN)


def test_long_reasons_are_cut() -> None:
    """A supervisor has to hear a bounded number of bounded sentences."""
    told = decoded(encoded([TAKEN._replace(why="x" * 5000)] * 100))
    assert len(told) == MOST_OBSTACLES and {len(each.why) for each in told} == {LONGEST_WHY}
    assert len(encoded(told)) < 2**16


@pytest.mark.parametrize("text", [b"", b"[", b"[[1, 2]]", b"{}x", b"[3]", b"\xff"])
def test_an_interrupted_worker_has_told_nothing(text: bytes) -> None:
    """Half of a message is no reason."""
    assert decoded(text) == ()
