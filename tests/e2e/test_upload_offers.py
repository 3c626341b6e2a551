"""The official Python SDK in a host that opens a session for every call, and closes it: a person uploads by a link."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.filing import ADAPTERS, HELPER, post, python_host, sha256, texts
from tests.e2e.processes import Server, adapter

pytestmark = pytest.mark.e2e

UPSTREAM = "tests.e2e.files_server"
STATUS = "upstream_upload_status"


async def call(url: str, mode: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """A call in a session of its own, which the SDK ends with DELETE; of 2026-07-28 there are none."""
    async with python_host(url, mode) as host:
        result: dict[str, Any] = await host.call(tool, **arguments)
        assert not result["isError"], result
        return result


@pytest.mark.parametrize(("mode", "workers"), [("legacy", 1), ("legacy", 2), ("2026-07-28", 2)])
async def test_a_person_uploads_while_the_model_waits(tmp_path: Path, mode: str, workers: int) -> None:
    """Links in session A, waiting with progress in B, the tool in C; also where each meets another process."""
    file, heard = tmp_path / "letter.txt", asyncio.Event()
    file.write_bytes(b"what the person has")
    digest = sha256(file.read_bytes())
    async with (
        Server(UPSTREAM, tmp_path) as upstream,
        adapter(tmp_path, upstream.url, adapters=ADAPTERS, core={"workers": workers}) as front,
    ):
        offer = (await call(front.url, mode, HELPER))["structuredContent"]

        async def wait() -> dict[str, Any]:
            async def told(progress: float, total: float | None, message: str | None) -> None:
                assert message and total is not None and progress <= total
                heard.set()

            async with python_host(front.url, mode) as host:
                arguments = {"upload_id": offer["upload_id"], "wait_seconds": 50}
                result = await host.client.call_tool(STATUS, arguments, progress_callback=told)
                found: dict[str, Any] = result.model_dump()["structured_content"]
                return found

        waiting = asyncio.ensure_future(wait())
        async with asyncio.timeout(20):
            await heard.wait()
        answer = await post(offer["open_in_browser"], file)
        assert answer.status == 200
        async with asyncio.timeout(20):
            status = await waiting
        assert status["state"] == "done" and status["uploads"][0]["sha256"] == digest
        assert status["upload_handles"] == answer.json["upload_handles"]
        assert digest in texts(await call(front.url, mode, "digest", path=status["upload_handles"][0]))
