"""The console's data over a real socket, before an upstream whose tools a test changes as it likes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson

from adapter.relay.http_api.recent_exchanges import Recent
from tests.edge.conftest import Adapter, done, merged, start_adapter
from tests.edge.raw import Exchange, Head, RawClient, RawUpstream, Script

AGENT, VIEWER, OPERATOR, OTHER = "agent-token", "viewer-token", "operator-token", "other-operators-token"
TOKENS = {"agent": AGENT, "viewer": VIEWER, "operator": OPERATOR, "chief": OTHER}
AUTH = {"enabled": True, "tokens": [{"name": name, "token": token} for name, token in TOKENS.items()]}
DATA = "/explorer/-"

Json = dict[str, Any]


def tool(name: str, description: str = "Does.", **more: Any) -> Json:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


class Shop:
    """An upstream's script that offers ``tools``, which may be others any time, and runs whatever it is called for."""

    def __init__(self, *tools: Json, run: Script = done) -> None:
        self.tools = tools
        self._run = run

    async def __call__(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        if message.get("method") == "tools/list":
            listed = {"tools": list(self.tools)}
            await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": listed}))
        else:
            await self._run(exchange)


class Console(Adapter):
    """The running adapter with its one server ``raw`` at ``/mcp``."""

    @property
    def recent(self) -> Recent:
        """The last exchanges, which a console shows."""
        assert self.app.recent is not None
        return self.app.recent

    async def ask(self, method: str, path: str, body: Any = None, **fields: str) -> tuple[Head, Any]:
        """One request below the console's data; the head and the JSON of its answer."""
        text = b"" if body is None else orjson.dumps(body)
        async with self.client() as client:
            head, answer = await client.request(method, text, f"{DATA}{path}", **fields)
        return head, orjson.loads(answer) if answer else None

    async def get(self, path: str, token: str | None = None) -> Any:
        """The JSON of a successful answer."""
        head, answer = await self.ask("GET", path, **bearer(token))
        assert head.status == 200, answer
        return answer

    async def accept(self, digest: str, token: str | None = None) -> tuple[int, Any]:
        head, answer = await self.ask("POST", "/pins/raw/accept", {"digest": digest}, **bearer(token))
        return head.status, answer


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


async def listed(client: RawClient, token: str | None = None) -> Any:
    """What ``tools/list`` answers."""
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    _, answer = await client.request("POST", body, **bearer(token))
    return orjson.loads(answer)


StartConsole = Callable[..., contextlib.AbstractAsyncContextManager[tuple[RawUpstream, Console, RawClient]]]
OPEN: dict[str, Any] = {
    "core": {"tool_definition_pinning": {"mode": "block", "block_error_session_action": "keep"}},
    "console": {"enabled": True, "operators": ["operator", "chief"]},
}


@contextlib.asynccontextmanager
async def opened_console(root: Path, raw: RawUpstream, **more: Any) -> AsyncIterator[Console]:
    """The adapter with its console on, in front of ``raw``."""
    async with start_adapter(root, raw, **merged(deepcopy(OPEN), more)) as front:
        yield Console(front.app, front.port)
