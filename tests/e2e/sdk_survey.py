"""Surveys of servers by clients of the SDKs that are not ours, each a script in a process of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.processes import start
from tests.e2e.provision import HERE, packages

PATIENCE = 60.0
"""Seconds for one survey: four browsers may start beside it."""

Calls = Sequence[tuple[str, dict[str, Any]]]
"""Tools and their arguments."""

Found = dict[str, Any]
"""``answers`` by question, and what was ``heard``."""


class Surveyors:
    """The clients by name: SDK and, for the TypeScript SDK 2.x, its mode."""

    def __init__(self, node: Path, python: Path, place: Path) -> None:
        self._node = node
        self._python = python
        self._log = place / "surveyors.log"

    async def survey(self, name: str, target: dict[str, Any], calls: Calls, hears: int) -> Found:
        """Ask everything, and listen until ``hears`` messages have come."""
        sdk, _, mode = name.partition(" ")
        questions = {"sdk": sdk, "mode": mode or None, "target": target, "calls": calls, "hears": hears}
        async with await start(
            [*self._program(sdk), json.dumps(questions)], self._log, {"NODE_PACKAGES": str(packages())}
        ) as running:
            found: Found = json.loads(await running.line(PATIENCE))
        return found

    async def surveys(
        self, names: Sequence[str], target: dict[str, Any], calls: Calls, hears: Sequence[int]
    ) -> dict[str, Found]:
        """Let all of these clients ask at once."""
        found = await asyncio.gather(
            *(self.survey(name, target, calls, count) for name, count in zip(names, hears, strict=True))
        )
        return dict(zip(names, found, strict=True))

    def _program(self, sdk: str) -> list[str | Path]:
        if sdk == "python_v1":
            return [self._python, "-m", "tests.e2e.clients.survey_v1"]
        return [self._node, HERE / "clients" / "survey.mjs"]
