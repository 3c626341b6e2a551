"""``python -m tests.e2e.conformance [--replicas N] [--workers N]``: the public suite, direct and through the adapter.

Every scenario of both revisions is run against the conformance server and against the adapter in front of it.
The exit status is 0 only when every check passes and comes out the same on both roads; there is no list of
expected failures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.e2e import provision
from tests.e2e.processes import Server
from tests.e2e.replicas import serving
from tests.missing import Missing

REVISIONS = ("2025-11-25", "2026-07-28")
SUITE_TIMEOUT = 120.0
"""Seconds for all scenarios of one revision on one road."""

FAILED = ("FAILURE", "WARNING", "SKIPPED")
"""What counts as not passed. A warning is a SHOULD that does not hold, and a skipped check proves nothing."""


class Check(NamedTuple):
    """One finding of the suite; ``reason`` is its sentence where it did not pass."""

    id: str
    status: str
    reason: str


Checks = Mapping[str, list[Check]]
"""The checks of each scenario, in the order they were made."""


@dataclass(frozen=True)
class Verdict:
    """One scenario of one revision on both roads."""

    revision: str
    scenario: str
    direct: list[Check]
    adapted: list[Check]

    @property
    def problems(self) -> list[str]:
        """Why the scenario does not hold; empty when it does."""
        found = [
            f"{road}: {check.id} {check.status} {check.reason}"
            for road, checks in (("direct", self.direct), ("adapter", self.adapted))
            for check in checks
            if check.status in FAILED
        ]
        if not self.direct or not self.adapted:
            found.append("the scenario did not run on both roads")
        elif comparable(self.direct) != comparable(self.adapted):
            found.append(f"the checks differ: {comparable(self.direct)} and {comparable(self.adapted)}")
        return found


def comparable(checks: list[Check]) -> list[tuple[str, str]]:
    """What must be equal on two roads, in no order: each check and how it came out."""
    return sorted((check.id, check.status) for check in checks)


async def _suite(*arguments: str) -> str:
    binary = provision.packages() / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    process = await asyncio.create_subprocess_exec(
        provision.node(), binary, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(SUITE_TIMEOUT):
        printed, _ = await process.communicate()
    return printed.decode()


async def scenarios(revision: str) -> list[str]:
    """Every server scenario that applies to ``revision``, also those the suite calls pending."""
    listed = await _suite("list", "--server", "--spec-version", revision)
    return re.findall(r"^\s+- (\S+) \[", listed, re.MULTILINE)


async def run(url: str, revision: str, place: Path) -> Checks:
    """Runs the scenarios of ``revision`` against ``url``; ``place`` is a directory for the suite's results."""
    await _suite(
        "server", "--url", url, "--suite", "all", "--spec-version", revision, "--output-dir", str(place)
    )
    checks: dict[str, list[Check]] = {}
    for result in sorted(place.glob("server-*/checks.json")):
        named = re.fullmatch(r"server-(.+?)-\d{4}-\d\d-\d\dT.*", result.parent.name)
        assert named is not None, result
        checks[named[1]] = [
            Check(found["id"], found["status"], found.get("errorMessage", ""))
            for found in json.loads(result.read_bytes())
        ]
    return checks


async def directly(place: Path) -> dict[str, Checks]:
    """The checks of both revisions at the conformance server itself."""
    async with Server("tests.e2e.conformance_server", place) as upstream:
        return {
            revision: await run(upstream.url, revision, place / "direct" / revision) for revision in REVISIONS
        }


async def compare(
    place: Path, direct: Mapping[str, Checks], replicas: int = 1, workers: int = 1
) -> list[Verdict]:
    """Run everything through the adapter too, in front of a server of its own: no run sees another's changes.

    ``replicas`` are processes on one Redis behind nginx, ``workers`` those of one host on SQLite.
    """
    verdicts: list[Verdict] = []
    async with (
        Server("tests.e2e.conformance_server", place) as upstream,
        serving(place, upstream.url, replicas=replicas, workers=workers) as front,
    ):
        for revision, found in direct.items():
            adapted = await run(front.url, revision, place / "adapter" / revision)
            verdicts += [
                Verdict(revision, name, found.get(name, []), adapted.get(name, []))
                for name in await scenarios(revision)
            ]
    return verdicts


async def compared(place: Path, replicas: int, workers: int) -> list[Verdict]:
    """Run everything on both roads, one after the other."""
    return await compare(place, await directly(place), replicas, workers)


def table(verdicts: list[Verdict]) -> str:
    """One line a scenario, with the problems below it; the totals last."""
    lines = [f"{'revision':<12}{'scenario':<50}{'direct':>8}{'adapter':>9}"]
    for verdict in verdicts:
        passed = [
            sum(check.status == "SUCCESS" for check in road) for road in (verdict.direct, verdict.adapted)
        ]
        mark = "  differs or fails" if verdict.problems else ""
        lines.append(f"{verdict.revision:<12}{verdict.scenario:<50}{passed[0]:>8}{passed[1]:>9}{mark}")
        lines += [f"    {problem}" for problem in verdict.problems]
    for revision in REVISIONS:
        ours = [verdict for verdict in verdicts if verdict.revision == revision]
        held = sum(not verdict.problems for verdict in ours)
        lines.append(f"{revision}: {held} of {len(ours)} scenarios pass and are the same through the adapter")
    return "\n".join(lines)


def main() -> int:
    """Prints the table; 1 when a scenario fails or differs, 2 when the suite cannot be had here."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.conformance")
    parser.add_argument("--replicas", type=int, default=1, help="replicas on one Redis behind nginx")
    parser.add_argument("--workers", type=int, default=1, help="workers of one host on SQLite")
    given = parser.parse_args()
    if given.replicas > 1 and given.workers > 1:
        parser.error("--replicas and --workers cannot be combined")
    try:
        provision.node()
    except Missing as missing:
        print(f"conformance: {missing}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="conformance-") as place:
        verdicts = asyncio.run(compared(Path(place), given.replicas, given.workers))
    print(table(verdicts))
    return 1 if not verdicts or any(verdict.problems for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
