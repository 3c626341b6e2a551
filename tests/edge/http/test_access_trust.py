"""What callers without a credential may see where there are no tokens: more on this machine than through a proxy."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.edge.conftest import Adapter, StartAdapter, StartUpstream, done

OPEN = {"console": {"enabled": True}, "telemetry": {"prometheus": {"enabled": True}}}
PINGED = {"upstream_ping": {"enabled": True}}
BY_A_PROXY: list[dict[str, str]] = [
    {"Forwarded": "for=192.0.2.7"},
    {"Via": "1.1 proxy"},
    {"X-Real-IP": "192.0.2.7"},
    {"x-forwarded-for": "192.0.2.7"},
    {"X-Forwarded-Proto": "https"},
    {"X-Forwarded-Whatever": "1"},
    {"host": "tools.example"},
]


async def answers(front: Adapter, **fields: str) -> dict[str, tuple[int, Any]]:
    """Status and body of what only operators may see."""
    async with front.client() as client:
        asked = {}
        for path in ("/metrics", "/explorer/-/servers", "/healthz"):
            head, body = await client.request("GET", b"", path, **fields)
            asked[path] = head.status, body
        return asked


async def test_a_caller_on_this_machine_is_an_operator(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """No token is asked for, since nobody else reaches the adapter."""
    async with upstream(done) as up, adapter(up, **OPEN) as front:
        found = await answers(front)
        assert found["/metrics"][0] == found["/explorer/-/servers"][0] == 200


@pytest.mark.parametrize("fields", BY_A_PROXY)
async def test_a_caller_behind_a_proxy_is_nobody(
    upstream: StartUpstream, adapter: StartAdapter, fields: dict[str, str]
) -> None:
    """The proxy stands on this machine, and its callers anywhere; the answer says what to enable."""
    core = {"allowed_hosts": ["127.0.0.1", "tools.example"]}
    async with upstream(done) as up, adapter(up, core=core, **OPEN) as front:
        found = await answers(front, **fields)
        for path in ("/metrics", "/explorer/-/servers"):
            status, body = found[path]
            assert status == 403 and b"enable core.auth" in body, path


@pytest.mark.parametrize(
    ("core", "fields", "told"),
    [
        ({}, {}, True),
        ({}, {"Via": "1.1 proxy"}, False),
        ({"public_base_url": "https://tools.example"}, {}, False),
        ({"host": "0.0.0.0"}, {}, False),
    ],
)
async def test_health_has_details_for_nobody_else(
    upstream: StartUpstream, adapter: StartAdapter, core: dict[str, Any], fields: dict[str, str], told: bool
) -> None:
    """The text of a failed ping stays on this machine."""
    async with upstream(done) as up:
        gone = {"upstream": {"url": "http://127.0.0.1:9/mcp"}}
        async with adapter(up, server=gone, core={**PINGED, **core}) as front:
            await front.app.server_parts.monitors["raw"].ping_once()
            _, body = (await answers(front, **fields))["/healthz"]
            error = orjson.loads(body)["servers"][0]["ping"]["last_error"]
            assert (error != "failed") == told
