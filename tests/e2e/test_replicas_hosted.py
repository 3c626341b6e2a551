"""Hosted tools and replicas that are processes: a session goes on where one of them is killed."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from adapter.app.redis_state import build_redis_store
from adapter.relay.sessions.session_map import TABLE
from adapter.rules.access.sessions import decode, session_key
from adapter.settings.root import Settings
from tests.e2e.processes import Adapter
from tests.edge.end_to_end.test_replicas_kinds import CONNECTORS, HOSTED
from tests.edge.raw import RawClient
from tests.edge.replicating import call
from tests.hosted.databases import URL_PASSWORD, Server


async def test_a_session_goes_on_when_the_replica_that_opened_it_is_killed(
    tmp_path: Path, redis_server: Server
) -> None:
    """A is killed with SIGKILL; B, which has not seen the session before, answers in it, and opens none anew."""
    redis = {
        "url": f"redis://:{URL_PASSWORD}@127.0.0.1:{redis_server.port}/2",
        "key_base": secrets.token_hex(8),
    }
    settings: dict[str, Any] = {
        "state_persistence": {"type": "redis", "redis": redis},
        "storage": {"root": str(tmp_path / "files")},
        "connectors": CONNECTORS,
        "servers": [{"id": "raw", "mount_path": "/mcp", **HOSTED}],
    }
    fronts = [Adapter(tmp_path / name, settings) for name in ("a", "b")]
    store = build_redis_store(Settings.model_validate(settings))
    try:
        for front in fronts:
            front.place.mkdir()
            await front.start()
        async with RawClient(fronts[0].port) as first:
            await first.initialize()
            answer = await call(first, "one")
        assert answer["result"]["isError"] is False
        await store.open()
        key = session_key(first.session or "")
        before = await store.get(TABLE, key)
        await fronts[0].kill()
        second = RawClient(fronts[1].port)
        second.session = first.session
        async with second:
            assert await call(second, "one") == answer
            after = await store.get(TABLE, key)
            assert before is not None and after is not None
            assert decode(after.value).upstream == decode(before.value).upstream
            assert (await second.request("DELETE"))[0].status == 200
            assert (await second.call("one"))[0].status == 404
        assert "upstream session renewed" not in (tmp_path / "b" / "adapter.log").read_text()
    finally:
        await store.close()
        for front in fronts:
            await front.stop()
