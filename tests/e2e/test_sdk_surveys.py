"""Published servers, surveyed by the clients of other SDKs: key by key what they find directly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.over_stdio import Command, serving
from tests.e2e.processes import Server, adapter
from tests.e2e.sdk_survey import Found, Surveyors
from tests.e2e.test_sse import PYTHON, over_sse
from tests.e2e.test_sse import everything as everything_over_sse
from tests.e2e.test_stdio_servers import (
    CALLS,
    Call,
    at_site,
    browser,
    clock,
    everything,
    fetch,
    filesystem,
    git,
    site,
    untimed,
)

pytestmark = pytest.mark.e2e

__all__ = ["browser", "clock", "everything", "fetch", "filesystem", "git", "site"]

LEGACY = ("python_v1", "ts_v1", "ts_v2 legacy")
CLIENTS = (*LEGACY, "ts_v2 auto")
ONE_OF_EACH = ("python_v1", "ts_v2 auto")
"""Clients of servers at which clients differ in nothing that is said to the server."""

HEARS = {"browser": (1, 2), "everything": (1, 12)}
"""The messages that come by themselves: to the SDK 1.x, which can do nothing for a server, and to each other client,
which has roots, samples and a user."""

MODERN = ("clock", "fetch", "git")
"""Servers that speak 2026-07-28."""


PLAIN: list[Call] = [
    ("echo", {"message": "häh"}),
    ("get-sum", {"a": 1, "b": 2}),
    ("get-tiny-image", {}),
    ("none", {}),
]
"""Calls at which the server asks nobody."""


@pytest.fixture
def surveyors(node: Path, mcp1_python: Path, tmp_path: Path) -> Surveyors:
    """The scripts, installed."""
    return Surveyors(node, mcp1_python, tmp_path)


def compare(direct: dict[str, Found], through: dict[str, Found]) -> None:
    """Find no difference, and name the first."""
    for name, found in direct.items():
        for question, answer in found["answers"].items():
            assert untimed(through[name]["answers"][question]) == untimed(answer), (name, question)
        # A server may ask for the roots once or twice, as its timers have it.
        assert untimed(sorted(set(through[name]["heard"]))) == untimed(sorted(set(found["heard"]))), name


@pytest.mark.parametrize("name", sorted(CALLS))
async def test_every_client_finds_the_process_as_it_is(
    name: str, surveyors: Surveyors, site: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Lists, contents, results, refusals, and what the server says and asks, for several clients at once, piped."""
    program, arguments = request.getfixturevalue(name)
    calls = at_site(CALLS[name], site)
    clients = CLIENTS if name == "everything" else ONE_OF_EACH
    few, many = HEARS.get(name, (0, 0))
    hears = [few, *(many for _ in clients[1:])]
    direct = await surveyors.surveys(clients, {"command": program, "args": arguments}, calls, hears)
    async with serving(tmp_path, (program, arguments), bridge="never") as front:
        through = await surveyors.surveys(clients, {"url": front.url}, calls, hears)
    compare(direct, through)
    assert (direct["ts_v2 auto"]["answers"]["version"] == "2026-07-28") is (name in MODERN)


@pytest.mark.parametrize("process", ["per_principal", "shared"])
async def test_a_shared_process_is_as_it_is(
    process: str, surveyors: Surveyors, everything: Command, tmp_path: Path
) -> None:
    """To a client that can do nothing for a server: a shared process hears of nobody's capabilities."""
    program, arguments = everything
    direct = await surveyors.survey(LEGACY[0], {"command": program, "args": arguments}, PLAIN, 0)
    async with serving(tmp_path, everything, process=process) as front:
        through = await surveyors.survey(LEGACY[0], {"url": front.url}, PLAIN, 0)
    assert through["answers"] == direct["answers"]


@pytest.fixture
def texteditor(texteditor_python: Path) -> Command:
    """``mcp-text-editor``, on the Python SDK 1.x."""
    return str(texteditor_python.with_name("mcp-text-editor")), []


OF_ITS_ERA = {"version", "capabilities"}
"""What differs between the eras by itself."""

ADDED = {"_meta", "ttlMs", "cacheScope", "execution", "$schema"}
"""Members of results, and of tools, that only one era has, or that the SDK puts elsewhere."""


def eraless(answer: Any) -> Any:
    """An answer without what one era adds. How a refusal is worded depends on its HTTP status, which is of the era."""
    if isinstance(answer, list):
        return [eraless(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    if "refused" in answer:
        return "refused"
    return {name: eraless(value) for name, value in answer.items() if name not in ADDED}


@pytest.mark.parametrize("name", ["everything", "texteditor"])
async def test_a_modern_client_finds_a_legacy_server_as_a_legacy_client_does(
    name: str, surveyors: Surveyors, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Servers of the SDKs 1.x, for a client that speaks nothing but 2026-07-28, questions among the rest."""
    program, arguments = request.getfixturevalue(name)
    direct = await surveyors.survey(
        "ts_v2 legacy", {"command": program, "args": arguments}, CALLS.get(name, []), 0
    )
    async with serving(tmp_path, (program, arguments), sessions={"upstream": "principal"}) as front:
        through = await surveyors.survey("ts_v2 2026-07-28", {"url": front.url}, CALLS.get(name, []), 0)
    assert through["answers"]["version"] == "2026-07-28"
    assert through["answers"].keys() == direct["answers"].keys()
    for question in direct["answers"].keys() - OF_ITS_ERA:
        found, expected = (eraless(untimed(each["answers"][question])) for each in (through, direct))
        if question == "tools":
            # Its session declares all that any client can do, for which a server may have more of them.
            assert all(tool in found["tools"] for tool in expected["tools"])
        else:
            assert found == expected, question


async def sse_is_the_same(
    surveyors: Surveyors, url: str, place: Path, calls: list[Call], *hears: int
) -> None:
    """Compare what clients find at a server over SSE, directly and through the adapter."""
    direct = await surveyors.surveys(LEGACY, {"sse": url}, calls, hears)
    async with adapter(place, over_sse(url)) as front:
        through = await surveyors.surveys(LEGACY, {"url": front.url}, calls, hears)
    compare(direct, through)


async def test_every_client_finds_everything_over_sse_as_it_is(
    surveyors: Surveyors, node: Path, server_packages: Path, tmp_path: Path
) -> None:
    """The same for the reference server of the TypeScript SDK over SSE."""
    async with everything_over_sse(node, server_packages, tmp_path) as url:
        await sse_is_the_same(surveyors, url, tmp_path, CALLS["everything"], 1, 12, 12)


async def test_every_client_finds_a_python_server_over_sse_as_it_is(
    surveyors: Surveyors, tmp_path: Path
) -> None:
    """Lists, reads, prompts, calls, progress and refusals of the Python SDK's server."""
    calls: list[Call] = [
        ("echo", {"text": "häh"}),
        ("add", {"numbers": [1, 2]}),
        ("steps", {"count": 3}),
        ("fail", {}),
        ("echo", {"wrong": 1}),
    ]
    async with Server(PYTHON, tmp_path) as upstream:
        await sse_is_the_same(surveyors, upstream.url, tmp_path, calls, 0, 3, 3)
