"""Hosts that show their model nothing but structured content, and clients that check it: both get artifacts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.filing import Host, Json, ScriptedHost, artifact, curl, python_host
from tests.e2e.processes import Server, adapter
from tests.e2e.structured_server import CONTENT, SCHEMAS
from tests.e2e.talk import Command, connected

pytestmark = pytest.mark.e2e

ADAPTERS = [{"type": "artifact_producer", "tools": list(SCHEMAS), "output_path_argument": "filename"}]
GOOD = [name for name in SCHEMAS if name != "broken"]
RENAMED = ("open", "mapping", "own")
"""Tools whose own member has the first name."""

PYTHON = ("legacy", "2026-07-28")
TYPESCRIPT = ("ts_v1", "ts_v2 legacy", "ts_v2 2026-07-28")


@asynccontextmanager
async def front(place: Path, **artifacts: str) -> AsyncIterator[str]:
    """The URL of an adapter in front of the tools."""
    core = {"allow_artifacts_download": True}
    async with (
        Server("tests.e2e.structured_server", place) as upstream,
        adapter(place, upstream.url, adapters=ADAPTERS, core=core, artifacts=artifacts) as running,
    ):
        yield running.url


def shown_by_codex(result: Json) -> str:
    """What the model of Codex is given: structured content where there is any, else the blocks.

    Source: openai/codex, codex-rs/protocol/src/models.rs, and issues #10334 and #38287 (August 2026). Claude Code
    2.1.280 does the same: anthropics/claude-code, issue #79944 (September 2026).
    """
    structured = result.get("structuredContent")
    return json.dumps(result["content"] if structured is None else structured)


async def check_all(host: Host) -> None:
    """Every tool's answer passes the client's own check, and lists a file that can be fetched."""
    await host.tools()
    for name in GOOD:
        result = await host.call(name, filename=f"{name}.txt")
        told = artifact(result)
        structured = json.loads(shown_by_codex(result))
        (entry,) = structured.pop("adapter_artifacts" if name in RENAMED else "artifacts")
        assert structured == SCHEMAS[name][1]
        assert (entry["uri"], entry["name"]) == (told["artifact_uri"], f"{name}.txt")
        assert (await curl(entry["download_url"])).body == CONTENT


@pytest.mark.parametrize("mode", PYTHON)
async def test_the_python_sdk_accepts_every_answer(mode: str, tmp_path: Path) -> None:
    """It validates structured content by the schemas that it was sent, and refuses what does not fit."""
    async with front(tmp_path) as url, python_host(url, mode) as host:
        await check_all(host)
        with pytest.raises(RuntimeError, match=r"[Ii]nvalid structured content"):
            await host.call("broken", filename="a.txt")


async def test_the_first_python_sdk_accepts_every_answer(command: Command, tmp_path: Path) -> None:
    """As its successor does."""
    async with front(tmp_path) as url, connected(command, "python_v1", url, tmp_path) as client:
        for name in GOOD:
            told = await client.ask("call", tool=name, arguments={"filename": "a.txt"}, timeout=20)
            assert told["ok"], (name, told)
        told = await client.ask("call", tool="broken", arguments={"filename": "a.txt"}, timeout=20)
        assert not told["ok"] and "structured content" in told["text"]


@pytest.mark.parametrize("name", TYPESCRIPT)
async def test_the_typescript_sdk_accepts_every_answer(name: str, command: Command, tmp_path: Path) -> None:
    """Its validator is Ajv, which reads the same schemas in its own way."""
    async with front(tmp_path) as url, connected(command, name, url, tmp_path) as client:
        await check_all(ScriptedHost(client))
        told = await client.ask("result", tool="broken", arguments={"filename": "a.txt"}, timeout=20)
        assert not told["ok"] and "tructured content" in told["text"]
