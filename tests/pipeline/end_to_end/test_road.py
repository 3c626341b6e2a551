"""Every combination of stages, byte for byte: a change of the road's shape changes nothing that either end sees."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.pipeline.end_to_end.road import ROADS, Road, travelled
from tests.pipeline.end_to_end.transcripts import FILE, Transcripts, read


@pytest.fixture(scope="module")
def written() -> Transcripts:
    return read(FILE.read_text())


GUARDED = [list(group) for _, group in itertools.groupby(ROADS, key=lambda road: road[:3])]

QUICK = {("off", False, False), ("warn", False, True), ("block", True, False)}
"""Guard, policies and code mode of the combinations that are quick enough together; all others are deep."""


@pytest.mark.parametrize(
    "roads",
    [
        pytest.param(
            roads,
            id=roads[0].title.replace(" ", ","),
            marks=() if roads[0][:3] in QUICK else pytest.mark.deep,
        )
        for roads in GUARDED
    ],
)
async def test_both_ends_see_what_is_written(tmp_path: Path, written: Transcripts, roads: list[Road]) -> None:
    """With and without plans, upload consumers and artifact producers behind the same guard, policies and code mode."""
    for number, road in enumerate(roads):
        account = await travelled(road, tmp_path / str(number))
        expected = written.of(road)
        assert account.keys() == expected.keys()
        for step, text in account.items():
            assert text == expected[step], f"{step}, on the road with {road.title}"


def test_the_file_is_read_as_it_is_written(written: Transcripts) -> None:
    """So that no text is compared with a part of itself."""
    assert written.written() == FILE.read_text()
    assert set(written.texts) == {key for keys in written.steps.values() for key in keys.values()}
