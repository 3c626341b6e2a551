"""Hosts that show their model nothing but structured content, and clients that check it: both get artifacts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.filing import ADAPTERS as FILE_ADAPTERS
from tests.e2e.filing import HELPER, TRANSFER_TIMEOUT, Host, Json, ScriptedHost, artifact, curl, python_host
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


def shown_by_copilot(result: Json) -> str:
    """What the model of Copilot CLI is given: the texts and structured content, and no links to resources.

    Source: github/copilot-cli, issue #4515 (August 2026).
    """
    texts = [block["text"] for block in result["content"] if block["type"] == "text"]
    structured = result.get("structuredContent")
    return "\n".join(texts if structured is None else [*texts, json.dumps(structured)])


async def shell(command: str, place: Path) -> str:
    """What a command of the model's writes."""
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE, cwd=place)
    written, _ = await asyncio.wait_for(process.communicate(), TRANSFER_TIMEOUT)
    assert process.returncode == 0
    return written.decode()


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


async def test_codex_shows_no_file_without_the_list(tmp_path: Path) -> None:
    """With `never` the model is told what the tool said and nothing of the link behind it."""
    async with front(tmp_path, in_structured_content="never") as url, python_host(url) as host:
        result = await host.call("closed", filename="a.txt")
        assert artifact(result)["filename"] == "a.txt" and shown_by_codex(result) == '{"n": 1}'


async def test_copilot_moves_files_by_its_shell(tmp_path: Path) -> None:
    """Its model finds the command in what it is shown, then the handle in what that wrote, and at last the link."""
    (tmp_path / "photo.png").write_bytes(b"abc")
    core = {"allow_artifacts_download": True}
    async with (
        Server("tests.e2e.files_server", tmp_path) as upstream,
        adapter(tmp_path, upstream.url, adapters=FILE_ADAPTERS, core=core) as running,
        python_host(running.url, "legacy") as host,
    ):
        offered = shown_by_copilot(await host.call(HELPER)).splitlines()[-1]
        uploaded = json.loads(await shell(json.loads(offered)["example_curl"], tmp_path))
        result = await host.call("turn_round", path=uploaded["upload_handle"], filename="b.png")
        link = re.search(r"https?://[^\s\"\])]+/artifacts/[^\s\"\])]+", shown_by_copilot(result))
        assert link is not None and await shell(f"curl -sS '{link[0]}'", tmp_path) == "cba"


async def test_copilot_shows_the_link_with_structured_content(tmp_path: Path) -> None:
    """In the list and in a text: whichever its model reads leads to the file."""
    async with front(tmp_path) as url, python_host(url) as host:
        result = await host.call("closed", filename="a.txt")
        texts, _, structured = shown_by_copilot(result).rpartition("\n")
        (entry,) = json.loads(structured)["artifacts"]
        assert entry["download_url"] in texts
        assert await shell(f"curl -sS '{entry['download_url']}'", tmp_path) == CONTENT.decode()
