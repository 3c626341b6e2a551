"""One client's day on a road of stages: an upstream with files, the requests, and what both ends saw of each."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tests.edge.raw import (
    MODERN_META,
    MODERN_VERSION,
    Exchange,
    Head,
    RawClient,
    RawUpstream,
    event,
    initialize_body,
)
from tests.pipeline.end_to_end.living import Living, living


class Road(NamedTuple):
    """One combination of what may stand on the road of a server's requests."""

    guard: str
    shaped: bool
    code: bool
    planned: bool
    takes: bool
    draws: bool

    @property
    def title(self) -> str:
        words = [name for name, there in zip(self._fields[1:], self[1:], strict=True) if there]
        return " ".join([f"guard={self.guard}", *words])


ROADS = [
    Road(guard, *there)
    for guard in ("off", "warn", "block")
    for there in itertools.product(*[(False, True)] * 5)
]

# --- the settings -------------------------------------------------------------------------------------------

SETTINGS = """
core: {tool_definition_pinning: {mode: %s}, allow_artifacts_download: true}
state_persistence: {type: memory}
presenters:
  shown: {schema: {n: "any?", path: "string?", filename: "string?", hidden: "any?"}, redact: {paths: [hidden]}}
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    code_mode_enabled: %s
"""
SHAPED = """\
    disabled_tools: [shut]
    tool_description_policy: {mode: truncate, max_tool_description_chars: 12}
"""
PLANNED = """\
    stages:
      "*":  {middleware: ["code.py#seen"], limits: {egress: 64Ki, rate: {window: 60, max: 1000}}}
      free: {errors: {mode: result}}
      work: {presenter: shown, mappers: {input: "code.py#input"}, cache: {enabled: true}}
      turn: {presenter: shown}
"""
TAKES = "      - {type: upload_consumer, tools: [take, turn], file_path_argument: path}\n"
DRAWS = "      - {type: artifact_producer, tools: [draw, turn], output_path_argument: filename}\n"
CODE = """
def input(payload):
    return {**payload["inputs"], "by": "mapper"}


async def seen(ctx, args, next):
    return await next()
"""


def settings_of(road: Road) -> str:
    """The settings file of a combination."""
    text = SETTINGS % (f'"{road.guard}"', str(road.code).lower())
    text += SHAPED * road.shaped + PLANNED * road.planned
    if road.takes or road.draws:
        text += "    adapters:\n" + TAKES * road.takes + DRAWS * road.draws
    return text


# --- the upstream -------------------------------------------------------------------------------------------


def _tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": f"The tool that is called {name}.", "inputSchema": schema}


FILE = {"type": "string", "x-mcp-header": "File", "pattern": "^/"}
TARGET = {"type": "string", "x-mcp-header": "Target"}
TOOLS = [
    _tool("free", text={"type": "string"}),
    {**_tool("work"), "annotations": {"readOnlyHint": True}},
    _tool("take", path=FILE),
    _tool("draw", filename=TARGET),
    _tool("turn", path=FILE, filename=TARGET),
    _tool("shut"),
]


@dataclass
class Desk:
    """The script of an upstream; ``later`` is the response that its next GET stream brings."""

    tools: list[dict[str, Any]] = field(default_factory=lambda: list(TOOLS))
    later: bytes = b""

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.head.method == "GET":
            await exchange.begin_stream()
            await exchange.chunk(event(self.later, "e2"))
            await exchange.end_stream()
        elif not exchange.message:
            members = orjson.loads(exchange.body)
            answers = [self._response(each["id"], {"content": []}) for each in members if "id" in each]
            await exchange.json(b"[" + b",".join(answers) + b"]")
        elif exchange.message["method"] == "tools/call":
            await self._call(exchange)
        else:
            await self._answer(exchange)

    async def _answer(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        results: dict[str, dict[str, Any]] = {
            "tools/list": {"tools": self.tools},
            "resources/list": {"resources": [{"uri": "up://a", "name": "a"}]},
            "resources/templates/list": {"resourceTemplates": []},
            "resources/read": {"contents": [{"uri": "up://a", "text": "of the upstream"}]},
            "tasks/get": {"taskId": "t", "status": "completed", "statusMessage": "done"},
            "server/discover": {"capabilities": {"tools": {}}, "supportedVersions": [MODERN_VERSION]},
        }
        result = results.get(message["method"], {})
        if message["method"] == "subscriptions/listen":
            await exchange.begin_stream()
            agreed = {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": {}}}
            await exchange.chunk(event(orjson.dumps({"jsonrpc": "2.0", **agreed})))
            await exchange.chunk(event(self._response(message["id"], {})))
            await exchange.end_stream()
        elif result:
            await exchange.json(self._response(message["id"], self._in_era(message, result)))
        else:
            error = {"code": -32601, "message": "Method not found"}
            await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}))

    async def _call(self, exchange: Exchange) -> None:
        """Write where the arguments tell to, and answer as they ask for."""
        message: Any = exchange.message
        params = message["params"]
        arguments = params.get("arguments", {})
        response = self._response(message["id"], self._in_era(message, self._result(params, arguments)))
        how = arguments.get("how")
        if how == "error":
            error = {"code": -32000, "message": f"no {arguments.get('path')}"}
            await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}))
        elif how in ("stream", "later"):
            said = {"progressToken": 1, "progress": 1, "message": f"reads {arguments.get('path')}"}
            told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": said}
            await exchange.begin_stream()
            await exchange.chunk(b": a comment\n\n" + event(orjson.dumps(told), "e1"))
            if how == "later":
                self.later = response
            else:
                await exchange.chunk(event(response))
            await exchange.end_stream()
        else:
            await exchange.json(response)

    @staticmethod
    def _result(params: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
        if arguments.get("how") == "ask" and "requestState" not in params:
            asks = {"q": {"method": "elicitation/create", "params": {"mode": "form", "message": "Really?"}}}
            return {"resultType": "input_required", "inputRequests": asks, "requestState": "s1"}
        told = Path(str(arguments.get("filename")))
        if told.is_absolute():
            told.write_bytes(b"drawn")
        seen = {"n": 1.0, "path": arguments.get("path"), "filename": arguments.get("filename"), "hidden": "x"}
        return {"content": [{"type": "text", "text": orjson.dumps(seen).decode()}]}

    @staticmethod
    def _in_era(message: Any, result: dict[str, Any]) -> dict[str, Any]:
        if "_meta" not in message.get("params", {}):
            return result
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}

    @staticmethod
    def _response(number: object, result: dict[str, Any]) -> bytes:
        # The spaces are not what anybody else would write.
        return b'{"result": %b, "jsonrpc":"2.0","id" : %b}' % (orjson.dumps(result), orjson.dumps(number))


# --- what both ends saw --------------------------------------------------------------------------------------

_LEFT_OUT = {"host", "content-length", "transfer-encoding", "date", "server", "x-content-type-options"}
"""Fields that depend on lengths, on how fast somebody was, or on nothing."""
_UNLIKE = re.compile(
    r"(?P<id>\b[0-9a-f]{32}\b|\b[0-9a-f]{64}\b|adapter-[0-9a-f]{16}\b)|(?P<query>\b(?:exp|nonce|sig)=[^&\s\"\\')]+)"
    r"|(?P<session>(?<=mcp-session-id: )[\w-]{43}(?![\w-]))|(?P<time>\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00))"
    r"|(?P<host>127\.0\.0\.1:\d+)|(?P<late>\b\d{10}(?:\.\d+)?\b)"
)


@dataclass
class Account:
    """The steps of one day by their names, each with what the upstream received and the client got."""

    place: Path
    up: RawUpstream
    front: Living
    steps: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)

    async def step(
        self, title: str, client: RawClient, method: str, body: bytes = b"", **fields: str
    ) -> bytes:
        """Send a request, note both ends of it, and return the body of the answer."""
        before = len(self.up.seen)
        head, answer = await client.request(method, body, **fields)
        await self._idle()
        seen = [self._text(each.head, each.body) for each in self.up.seen[before:]]
        lines = [*(f"> {line}" for text in seen for line in text), *self._lines(head, answer)]
        self.steps[title] = self._alike("\n".join(lines))
        return answer

    def _lines(self, head: Head, body: bytes) -> list[str]:
        return [f"< {line}" for line in self._text(head, body)]

    async def _idle(self) -> None:
        """Wait until nothing is done behind the exchange any more."""
        while self.front.app.background._running:
            await asyncio.gather(*self.front.app.background._running)

    @staticmethod
    def _text(head: Head, body: bytes) -> list[str]:
        if head.get("content-encoding") == "gzip":
            body = b"(gzip) " + gzip.decompress(body)
        fields = [f"{name}: {value}" for name, value in sorted(head.fields) if name not in _LEFT_OUT]
        return [head.first, *fields, *body.decode().splitlines()]

    def _alike(self, text: str) -> str:
        """The text without what differs from day to day; what is equal in it stays equal."""
        text = text.replace(str(self.place), "(place)")
        for secret, name in self.secrets.items():
            text = text.replace(secret, name)
        known: dict[str, str] = {}

        def named(found: re.Match[str]) -> str:
            kind = found.lastgroup or ""
            if kind == "query":
                return f"{found[0].partition('=')[0]}=(…)"
            if kind != "id":
                return f"({kind})"
            return known.setdefault(found[0], f"(id {len(known) + 1})")

        return _UNLIKE.sub(named, text)


# --- the day ------------------------------------------------------------------------------------------------


def message(method: str, number: int = 1, **params: Any) -> bytes:
    # The order of the members and the spaces are what must come through.
    return b'{ "params":%b,"id": %d , "method":"%b","jsonrpc":"2.0"}' % (
        orjson.dumps(params),
        number,
        method.encode(),
    )


def calling(road: Road, tool: str, **arguments: Any) -> dict[str, Any]:
    """The params of a call, by way of code mode where that is on."""
    if road.code:
        return {"name": "up_call_tool", "arguments": {"name": tool, "arguments": arguments}}
    return {"name": tool, "arguments": arguments}


FORM = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n--b--\r\n'


async def uploaded(road: Road, client: RawClient) -> str:
    """A handle of a file that the client uploaded; some text where nothing takes any."""
    if not road.takes:
        return "upload://sessions/none/none"
    head, body = await client.request(
        "POST", FORM, "/upload/up", content_type="multipart/form-data; boundary=b"
    )
    assert head.status == 200, body
    handle: str = orjson.loads(body)["upload_handle"]
    return handle


async def legacy_day(road: Road, day: Account, client: RawClient) -> None:
    """What a client of the legacy era may do in a session, and in the end its upstream's tools change."""
    desk = day.up.script
    assert isinstance(desk, Desk)
    opened = orjson.dumps(
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw"}}
    )
    before = message("initialize", 0).replace(b"{}", opened)
    await client.initialize()
    assert client.session is not None
    day.secrets[client.session] = "(session)"
    session, client.session = client.session, None
    await day.step("initialize", client, "POST", before)
    client.session = session

    async def ask(step: str, method: str, **params: Any) -> bytes:
        return await day.step(step, client, "POST", message(method, **params))

    async def call(step: str, tool: str, **arguments: Any) -> bytes:
        return await ask(step, "tools/call", **calling(road, tool, **arguments))

    await ask("list", "tools/list")
    await ask("list again", "tools/list")
    await ask("list next page", "tools/list", cursor="2")
    handle = await uploaded(road, client)
    await call("free", "free", text="1.0")
    await call("free on a stream", "free", how="stream")
    await call("free refused", "free", how="error")
    await call("work", "work", n=1)
    await call("work again", "work", n=1)
    await call("shut", "shut")
    await ask("no name", "tools/call")
    await ask("by its own name", "tools/call", name="free", arguments={})
    await call("take", "take", path=handle)
    await call("take on a stream", "take", path=handle, how="stream")
    await call("take refused", "take", path=handle, how="error")
    await call("take a path", "take", path="/etc/passwd")
    await call("draw", "draw", filename="a.txt")
    await call("draw on a stream", "draw", how="stream")
    await call("turn", "turn", path=handle, filename="b.txt")
    await call("turn on a stream", "turn", path=handle, filename="b.txt", how="stream")
    await call("turn refused", "turn", path=handle, filename="b.txt", how="error")
    for tool in ("free", "turn"):
        await call(f"{tool} later", tool, path=handle, filename="c.txt", how="later")
        await day.step(f"{tool} came", client, "GET", last_event_id="e1")
    zipped = gzip.compress(message("tools/call", **calling(road, "free")), mtime=0)
    await day.step("free compressed", client, "POST", zipped, content_encoding="gzip")
    given_up = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    await day.step("cancelled", client, "POST", given_up)
    await ask("helper", "tools/call", name="up_get_upload_url", arguments={})
    await ask("search", "tools/call", name="up_search_tools", arguments={"query": "tool called", "limit": 3})
    await ask("schema", "tools/call", name="up_get_tool_schema", arguments={"name": "turn"})
    await ask("misasked", "tools/call", name="up_call_tool", arguments={"name": 1})
    for method in ("resources/list", "resources/templates/list", "prompts/list"):
        await ask(method, method)
    await ask("document", "resources/read", uri="doc://upload_workflow.md")
    await ask("upstream's resource", "resources/read", uri="up://a")
    await ask("no such artifact", "resources/read", uri="artifact://sessions/x/y/z")
    await ask("task", "tasks/get", taskId="t")
    desk.tools = [{**tool, "title": "Another"} for tool in TOOLS[:3]]
    await ask("changed list", "tools/list")
    await call("changed call", "work", n=2)
    await call("unchanged call", "turn", path=handle, filename="d.txt")
    await day.step("end", client, "DELETE")
    desk.tools = list(TOOLS)


async def batch_day(road: Road, day: Account, client: RawClient) -> None:
    """What a batch of the one version that has them becomes."""
    day.up.version = "2025-03-26"
    await client.initialize(initialize_body("2025-03-26"))
    assert client.session is not None
    day.secrets[client.session] = "(session)"
    members = [
        message("tools/call", number, **calling(road, tool))
        for number, tool in enumerate(("free", "take", "draw", "turn", "work"), 1)
    ]
    body = b"[%b]" % b", ".join([*members, message("ping", 9), message("tools/list", 10)])
    await day.step("batch", client, "POST", body)
    day.up.version = "2025-11-25"


async def modern_day(road: Road, day: Account, client: RawClient) -> None:
    """What a client of the modern era may do."""
    client.session = None

    async def ask(step: str, method: str, mirrors: Mapping[str, str] | None = None, **params: Any) -> bytes:
        fields = {"mcp_protocol_version": MODERN_VERSION, "mcp_method": method, **(mirrors or {})}
        named = params.get("name") or params.get("uri")
        if named is not None:
            fields["mcp_name"] = str(named)
        return await day.step(step, client, "POST", message(method, _meta=MODERN_META, **params), **fields)

    async def call(step: str, tool: str, more: Mapping[str, Any] | None = None, **arguments: Any) -> bytes:
        given = {"mcp_param_file": "path", "mcp_param_target": "filename"}
        mirrors = {field: arguments[name] for field, name in given.items() if name in arguments}
        return await ask(
            step,
            "tools/call",
            {} if road.code else mirrors,
            **calling(road, tool, **arguments),
            **(more or {}),
        )

    await ask("discover", "server/discover")
    await ask("modern list", "tools/list")
    listed = orjson.loads(await ask("modern helper", "tools/call", name="up_get_upload_url", arguments={}))
    handle = "upload://sessions/none/none"
    if road.takes:
        url = listed["result"]["structuredContent"]["upload_url"]
        path = "/" + url.partition("//")[2].partition("/")[2]
        _, body = await client.request("POST", FORM, path, content_type="multipart/form-data; boundary=b")
        handle = orjson.loads(body)["upload_handle"]
    await call("modern free", "free", text="1.0")
    await call("modern work", "work", n=1)
    await call("modern take", "take", path=handle)
    await call("modern draw", "draw", filename="a.txt")
    await call("modern turn", "turn", path=handle, filename="b.txt")
    asked = await call("modern asks", "turn", path=handle, filename="c.txt", how="ask")
    state = orjson.loads(asked).get("result", {}).get("requestState", "s1")
    more = {"requestState": state, "inputResponses": {}}
    await call("modern answers", "turn", more, path=handle, filename="c.txt", how="ask")
    wanted = {"resourcesListChanged": True}
    await ask("listen", "subscriptions/listen", notifications=wanted)


async def travelled(road: Road, place: Path) -> dict[str, str]:
    """The account of a day on this road."""
    async with (
        RawUpstream(Desk()) as up,
        living(place, settings_of(road), {"UPSTREAM": up.url}, scripts={"code": CODE}) as front,
        RawClient(front.port) as client,
    ):
        day = Account(place, up, front)
        if front.app.server_parts.wiring_watches:
            await up.arrived("DELETE")  # the adapter has looked at the tools that are configured
        await modern_day(road, day, client)
        await batch_day(road, day, client)
        await legacy_day(road, day, client)
        return day.steps
