"""What the OpenAPI document says of the adapter is true, whatever is sent; and nothing that is sent breaks it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.openapi_adapter import TOKEN, furnished
from tests.e2e.processes import Adapter, Server, start

pytestmark = pytest.mark.e2e

CASES = int(os.environ.get("ADAPTER_TEST_CASES", "60"))
"""Cases of each operation and each of the two adapters, so that an operation gets twice as many."""

PATIENCE = 300.0
"""Seconds until one operation has been sent all of its cases."""

SINGLE = {
    *("showViewer", "listServers", "listSessions", "listFiles", "listExchanges", "showConfiguration"),
    *("showActivity", "listMounts", "showHealth", "showLive", "showReady"),
}
"""Operations without anything to vary, of which there is one case."""

REACHED = {
    "callTool": {"200", "400", "404", "500"},
    "validateArguments": {"200", "400", "404"},
    "listTools": {"200", "404"},
    "showMeta": {"200", "404"},
    "showTool": {"200", "404"},
    "readResource": {"200", "404"},
    "showPins": {"200", "404"},
    "showConnections": {"200", "404"},
    "acceptPins": {"200", "400", "404"},
    "listPrompts": {"200", "404"},
    "listResources": {"200", "404"},
    "listTemplates": {"200", "404"},
    "getPrompt": {"400", "404"},
    "readContents": {"200", "400", "404"},
    "completeArgument": {"400", "404"},
    "answerQuestion": {"400", "404"},
    "continueCall": {"400", "404"},
    "listOwnFiles": {"200", "404"},
    "followServer": {"200", "404"},
    "uploadFiles": {"200", "400", "401", "404"},
    "openUploadLink": {"200", "401", "404", "405"},
    "downloadDelivery": {"401", "404"},
    "downloadArtifact": {"200", "206", "401", "404"},
}
"""Answers that must have come, or else the cases went past what they are about."""

GUARDED = {
    *("callTool", "validateArguments", "readResource", "showPins", "showConnections", "acceptPins"),
    *("continueCall", "listPrompts", "listResources", "listTemplates", "getPrompt", "readContents"),
    *("completeArgument", "answerQuestion", "listOwnFiles", "followServer"),
}


Told = dict[str, dict[str, Any]]
"""What came of each operation, by its id."""


async def outcomes(python: Path, place: Path, *, auth: bool) -> Told:
    """Send an adapter of its own every case. Fails if something was logged that nobody had foreseen."""
    place.mkdir()
    async with (
        Server("tests.e2e.files_server", place) as files,
        Adapter(place, furnished(place, files.url, auth=auth)) as front,
    ):
        told = await sent(python, front.base, TOKEN if auth else "", place)
    log = (place / "adapter.log").read_text()
    assert "unexpectedly" not in log and "Traceback" not in log
    return told


async def sent(python: Path, base: str, token: str, place: Path) -> Told:
    """What the cases met at ``base``."""
    argv: list[str | Path] = [python, "-m", "tests.e2e.openapi_cases", base, str(CASES), token]
    told: Told = {}
    async with await start(argv, place / "schemathesis.log") as running:
        while len(told) < len(SINGLE) + len(REACHED):
            said = json.loads(await running.line(PATIENCE))
            told[said["operation"]] = said
    return told


async def test_the_document_holds(schemathesis_python: Path, tmp_path: Path) -> None:
    """Every status, media type, header field and body is one that it declares, and no 5xx is the adapter's own.

    So it is where tokens are asked for and where they are not; and no stranger is let in.
    """
    async with asyncio.TaskGroup() as both:
        unguarded = both.create_task(outcomes(schemathesis_python, tmp_path / "unguarded", auth=False))
        guarded = both.create_task(outcomes(schemathesis_python, tmp_path / "guarded", auth=True))
    for told in (unguarded.result(), guarded.result()):
        assert {name: said["broken"] for name, said in told.items() if said["broken"]} == {}
        assert told.keys() == SINGLE | REACHED.keys()
        for name, statuses in REACHED.items():
            assert told[name]["cases"] >= CASES and statuses <= told[name]["statuses"].keys(), told[name]
    assert all("401" in guarded.result()[name]["statuses"] for name in GUARDED)
