"""The record of a run for the history: its commit, machine, ratios and counts."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.figures import Spread
from tests.bench.fronts import ROOT
from tests.bench.history import FEWEST_ROUNDS, Record
from tests.bench.ratios import ratios
from tests.bench.results import Results

MEASURED = ("adapter", "tests/bench", "tests/edge", "pyproject.toml")
"""Paths that decide about the figures of a commit."""


class NotRecordable(Exception):
    """A run that would tell the history something else than it says; the text is the reason."""


def commit_to_record(place: Path = ROOT) -> str:
    """The commit of the working tree at ``place``. Raises NotRecordable if the tree has other code than that."""
    commit = _git(place, "rev-parse", "HEAD").strip()[:12]
    if changed := _git(place, "status", "--porcelain", "--", *MEASURED):
        raise NotRecordable(f"The measured code is not what was committed:\n{changed}")
    return commit


def _git(place: Path, *arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=place, capture_output=True, text=True, timeout=60)
    if ran.returncode:
        raise NotRecordable(f"The commit is not known: {ran.stderr.strip()}")
    return ran.stdout


def record_of(results: Results, commit: str, *, placement: str, accepted: str = "") -> Record:
    """The record of a run; ratios of too few rounds are left out, as nobody knows how far they vary.

    Raises NotRecordable if nothing is left.
    """
    kept = {name: values for name, values in ratios(results).items() if len(values) >= FEWEST_ROUNDS}
    if not kept and not results.calls:
        raise NotRecordable(
            f"Nothing was measured in {FEWEST_ROUNDS} rounds, and no Python calls were counted."
        )
    return Record(
        commit=commit,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=results.machine.as_json() | {"placement": placement},
        ratios={name: Spread.of([round(value, 4) for value in values]) for name, values in kept.items()},
        calls=dict(results.calls),
        accepted=accepted,
    )
