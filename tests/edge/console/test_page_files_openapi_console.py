"""The console's routes are what their OpenAPI document says of them."""

from __future__ import annotations

import orjson
from jsonschema import Draft202012Validator

from adapter.edge.console.page_files import ServedPaths
from adapter.edge.console.page_files import document as openapi
from tests.edge.consoling import DATA, Shop, StartConsole, listed
from tests.edge.test_console_data import READ, TOPICS, UPLOADS, eventually, upload
from tests.relay.sessions.test_health_probe import PING


async def test_every_route_is_described_as_it_answers(console: StartConsole) -> None:
    """Each answer is what the document says of it, and each route stands there."""
    document = orjson.loads(openapi(ServedPaths("/explorer"), "1"))
    assert {path for path in document["paths"] if path.startswith(DATA)} == {
        *(f"{DATA}{topic}".replace("/raw", "/{server}") for topic in TOPICS),
        f"{DATA}/pins/{{server}}/accept",
    }
    mounts = [{"id": "all", "servers": "*"}]
    core = {"upstream_ping": {**PING, "enabled": True}}
    async with console(Shop(READ), server=UPLOADS, core=core, mounts=mounts) as (_, front, agent):
        await agent.initialize()
        await listed(agent)
        await upload(agent)
        await eventually(front, "/servers", lambda told: told[0]["history"])
        for topic in TOPICS:
            answer = await front.get(topic)
            path = f"{DATA}{topic}".replace("/raw", "/{server}")
            said = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            validator = Draft202012Validator({**said, "components": document["components"]})
            assert [error.message for error in validator.iter_errors(answer)] == [], topic
            assert answer
