"""Kept answers that somebody else might get, or have to wait for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adapter.pipeline.result_cache import ResultCache
from tests.edge.raw import Exchange
from tests.pipeline.attacks.hostile import Hostile, behind, response
from tests.pipeline.end_to_end.living import ERAS

SETTINGS = """
servers:
  - id: raw
    mount_path: /mcp
    upstream: {url: "%s", client_headers: {passthrough: [Authorization]}}
    stages:
      "read_*": {cache: {enabled: true, ttl: 60s}}
core: {tool_definition_pinning: {mode: "off"}}
"""


async def whoever(exchange: Exchange, number: Any) -> None:
    """Answers by whom the client's own credentials name."""
    text = exchange.head.get("authorization") or "nobody"
    await exchange.json(response(number, {"content": [{"type": "text", "text": text}]}))


@pytest.mark.parametrize("era", ERAS)
async def test_w_who_brings_other_credentials_gets_no_kept_answer(tmp_path: Path, era: str) -> None:
    """Callers whom only the upstream tells apart are one principal here, and still not each other."""
    upstream = Hostile(whoever, listed=["read_a"], annotations={"readOnlyHint": True})
    async with behind(upstream, tmp_path, SETTINGS) as front, front.speaker(era) as speaker:
        said = [
            (await speaker.call("read_a", headers={"authorization": f"Bearer {who}"})).text
            for who in ("ann", "bob", "ann")
        ]
        said.append((await speaker.call("read_a")).text)
    assert said == ["Bearer ann", "Bearer bob", "Bearer ann", "nobody"]
    assert len(upstream.ran) == 3


async def test_w_nobody_waits_for_ever_for_anothers_answer() -> None:
    """Who leads and does not come to an end, as a client does that reads nothing, keeps nobody."""
    cache, begun = ResultCache(1 << 20, lambda: 0.0), asyncio.Event()

    async def endless() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async def own() -> str:
        return "own"

    leading = asyncio.create_task(cache.find_or_lead("k", "t", 60, endless))
    await begun.wait()
    assert await cache.find_or_lead("k", "t", 60, own, patience=0.01) == ("own", False)
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leading
