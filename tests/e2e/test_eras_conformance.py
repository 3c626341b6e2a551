"""The public conformance suite in one era, against a server that speaks only the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conformance import comparable, run, scenarios
from tests.e2e.processes import Server
from tests.e2e.replicas import serving

pytestmark = pytest.mark.e2e

CARRIED_BUT = {
    ("2025-11-25", "modern"): {"server-sse-polling", "server-sse-multiple-streams"},
    ("2026-07-28", "legacy"): {
        "server-stateless",
        "input-required-result-basic-elicitation",
        "input-required-result-ignore-extra-params",
    },
}
"""The scenarios that are not as they are directly, by the suite's revision and the server's era (docs/eras.md)."""


@pytest.mark.parametrize(
    ("revision", "era", "shape"),
    [("2025-11-25", "modern", {"replicas": 3}), ("2026-07-28", "legacy", {"workers": 2})],
)
async def test_scenarios_pass_at_a_server_of_the_other_era(
    revision: str, era: str, shape: dict[str, int], node: Path, replicas_programs: None, tmp_path: Path
) -> None:
    """Each comes out as it does directly at a server of both eras, but for those that are named: by one process and by
    several."""
    async with Server("tests.e2e.conformance_server", tmp_path) as both:
        direct = await run(both.url, revision, tmp_path / "direct")
    assert set(direct) == set(await scenarios(revision))
    for each in ({}, shape):
        place = tmp_path / f"bridged{len(each)}"
        place.mkdir()
        async with (
            Server("tests.e2e.eras_server", place, (era,)) as upstream,
            serving(place, upstream.url, **each) as front,
        ):
            found = await run(front.url, revision, place)
        differing = {
            name for name, checks in direct.items() if comparable(found.get(name, [])) != comparable(checks)
        }
        assert differing == CARRIED_BUT[revision, era], (each, {name: found.get(name) for name in differing})
