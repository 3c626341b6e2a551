"""Two people on one server, who may see and use different things by its rules, and one who may nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import orjson

from tests.edge.conftest import SCRIPTS, Adapter, StartAdapter, StartUpstream
from tests.edge.raw import MODERN_META, MODERN_VERSION, Exchange, Head, RawClient, RawUpstream, Script

ALICE, BOB, CAROL = (
    "alices-token-0123456789abcdef",
    "bobs-token-0123456789abcdef",
    "carols-token-0123456789abcdef",
)
AUTH = {
    "auth": {
        "enabled": True,
        "tokens": [
            {"name": name, "token": token}
            for name, token in (("alice", ALICE), ("bob", BOB), ("carol", CAROL))
        ],
    }
}
RULES: list[dict[str, Any]] = [
    {
        "principals": ["alice"],
        "tools": ["*"],
        "resources": ["file:///*"],
        "prompts": ["*"],
        "deny": ["payroll_*", "file:///payroll/*"],
    },
    {
        "principals": ["bob"],
        "tools": ["read_*", "payroll_show"],
        "resources": ["file:///public/*"],
        "prompts": ["greet"],
    },
]
TOOLS = ["read_file", "write_file", "payroll_show"]
RESOURCES = ["file:///public/a", "file:///payroll/b", "file:///home/c"]
TEMPLATES = ["file:///public/{name}", "file:///{+path}"]
PROMPTS = ["greet", "review"]


LISTS: dict[str, tuple[str, str, list[str]]] = {
    "tools/list": ("tools", "name", TOOLS),
    "resources/list": ("resources", "uri", RESOURCES),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", TEMPLATES),
    "prompts/list": ("prompts", "name", PROMPTS),
}


def entry_of(method: str, name: str) -> dict[str, Any]:
    _, member, _ = LISTS[method]
    schema = {"inputSchema": {"type": "object"}} if method == "tools/list" else {}
    return {member: name, "name": name, **schema}


async def office(exchange: Exchange) -> None:
    """An upstream with two entries on each page of its lists; it answers its own way to what it does not have."""
    message: dict[str, Any] = exchange.message
    method, params = message["method"], message.get("params") or {}
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if method in LISTS:
        key, _, names = LISTS[method]
        start = int(params.get("cursor") or 0)
        answer["result"] = {
            key: [entry_of(method, name) for name in names[start : start + 2]],
            "cacheScope": "public",
        }
        if start + 2 < len(names):
            answer["result"]["nextCursor"] = str(start + 2)
    elif method == "prompts/get" and params.get("name") not in PROMPTS:
        answer["error"] = {"code": 0, "message": f"What is {params.get('name')}?"}
    elif method.startswith("resources/") and params.get("uri") not in RESOURCES:
        answer["error"] = {"code": -32002, "message": "Gone fishing", "data": {"server": "office"}}
    else:
        answer["result"] = {"content": [{"type": "text", "text": f"did {method}"}], "resultType": "complete"}
    await exchange.json(orjson.dumps(answer))


class Person:
    """One client with one token, of one era."""

    def __init__(self, client: RawClient, token: str, modern: bool) -> None:
        self.client = client
        self.modern = modern
        self.fields = {"authorization": f"Bearer {token}"}

    async def open(self) -> None:
        if not self.modern:
            await self.client.initialize(**self.fields)

    async def send(self, body: bytes, **fields: str) -> tuple[Head, bytes]:
        return await self.client.request("POST", body, **(self.fields | fields))

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        fields: dict[str, str] = {}
        if self.modern:
            fields = {"mcp_protocol_version": MODERN_VERSION, "mcp_method": method}
            if method in ("tools/call", "prompts/get", "resources/read"):
                fields["mcp_name"] = str(params.get("uri", params.get("name")))
            params = {**params, "_meta": MODERN_META}
        body = orjson.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
        _, answer = await self.send(body, **fields)
        read: dict[str, Any] = orjson.loads(answer)
        return read

    async def all(self, method: str) -> list[str]:
        """The names on all pages of a list."""
        key, member, _ = LISTS[method]
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            result = (await self.ask(method, **cursor))["result"]
            assert not self.modern or result["cacheScope"] == "private"
            found += [each[member] for each in result[key]]
            if "nextCursor" not in result:
                return found
            cursor = {"cursor": result["nextCursor"]}

    async def call(self, name: str) -> dict[str, Any]:
        return await self.ask("tools/call", name=name, arguments={})


Open = Callable[[str], Awaitable[Person]]


Company = tuple[RawUpstream, Open, Adapter]
StartCompany = Callable[..., AbstractAsyncContextManager[Company]]


def company_of(upstream: StartUpstream, adapter: StartAdapter) -> StartCompany:
    """``async with company() as (up, enter, front)``: the office behind its rules, and the way in with a token."""

    @asynccontextmanager
    async def start(modern: bool = False, script: Script = office, **more: Any) -> AsyncIterator[Company]:
        own = {name: more.pop(name) for name in SCRIPTS & more.keys()}
        core, server = {**AUTH, **more.pop("core", {})}, {"access": RULES, **more.pop("server", {})}
        async with (
            upstream(script, **own) as up,
            adapter(up, server=server, core=core, **more) as front,
            AsyncExitStack() as clients,
        ):

            async def enter(token: str) -> Person:
                client = await clients.enter_async_context(front.client())
                person = Person(client, token, modern)
                await person.open()
                return person

            yield up, enter, front

    return start
