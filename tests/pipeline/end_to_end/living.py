"""A running adapter on a settings file and scripts of a test's own, and clients that speak to it byte by byte."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from adapter.app import App, build, running
from adapter.settings.file.load import load
from adapter.state.port import Store
from tests.edge.raw import MODERN_META, MODERN_VERSION, Head, RawClient, initialize_body
from tests.hosted.serving import Front

ERAS = ("2025-11-25", MODERN_VERSION)
"""A version of either era."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What came back for one JSON-RPC request."""

    head: Head
    body: bytes

    @property
    def messages(self) -> list[Json]:
        """The JSON-RPC messages, of a stream all that came on it."""
        if (self.head.get("content-type") or "").startswith("text/event-stream"):
            lines = [line.removeprefix(b"data:") for line in self.body.splitlines() if line[:5] == b"data:"]
            return [orjson.loads(line) for line in lines if line.strip()]
        return [orjson.loads(self.body)]

    @property
    def result(self) -> Json:
        message = self.messages[-1]
        assert "result" in message, message
        result: Json = message["result"]
        return result

    @property
    def error(self) -> Json:
        """The JSON-RPC error."""
        message = self.messages[-1]
        assert "error" in message, message
        error: Json = message["error"]
        return error

    @property
    def texts(self) -> list[str]:
        return [block["text"] for block in self.result["content"] if block["type"] == "text"]

    @property
    def text(self) -> str:
        """The one text of a result."""
        (text,) = self.texts
        return text

    @property
    def data(self) -> Any:
        """The JSON in the one text of a success."""
        assert not self.result.get("isError"), self.text
        return orjson.loads(self.text)

    @property
    def failure(self) -> Json:
        """What programs read of a result that is an error."""
        assert self.result["isError"], self.result
        failure: Json = self.result["_meta"]["adapter/error"]
        return failure


class Speaker:
    """A client on one connection, in a session where its era has any."""

    def __init__(self, raw: RawClient, path: str, version: str) -> None:
        self.raw = raw
        self.path = path
        self.version = version
        self._number = 0

    @property
    def modern(self) -> bool:
        return self.version == MODERN_VERSION

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **params: Any,
    ) -> Answer:
        """Call a tool; ``params`` join those of the call."""
        said = {"name": tool, **({} if arguments is None else {"arguments": arguments}), **params}
        return await self.ask("tools/call", said, headers)

    async def tools(self) -> dict[str, Json]:
        """What ``tools/list`` answers, by name."""
        return {tool["name"]: tool for tool in (await self.ask("tools/list", {})).result["tools"]}

    async def ask(self, method: str, params: Json, headers: Mapping[str, str] | None = None) -> Answer:
        """One request and its whole answer."""
        fields, body = self.request(method, params, headers)
        return Answer(*await self.raw.request("POST", body, self.path, **fields))

    async def begin(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **params: Any,
    ) -> int:
        """Send a call and read nothing. Its id."""
        said = {"name": tool, "arguments": arguments or {}, **params}
        fields, body = self.request("tools/call", said, headers)
        await self.raw.send("POST", body, self.path, **fields)
        return self._number

    async def tell(self, method: str, params: Json) -> Head:
        """A notification."""
        body = orjson.dumps({"jsonrpc": "2.0", "method": method, "params": params})
        head, _ = await self.raw.request("POST", body, self.path)
        return head

    def request(
        self, method: str, params: Json, headers: Mapping[str, str] | None = None
    ) -> tuple[dict[str, str], bytes]:
        """Header fields and body of a request with the next id."""
        self._number += 1
        fields = dict(headers or {})
        if self.modern:
            params = {**params, "_meta": {**MODERN_META, **params.get("_meta", {})}}
            fields = {"mcp-protocol-version": self.version, "mcp-method": method, **fields}
            if "name" in params:
                fields["mcp-name"] = params["name"]
        return fields, orjson.dumps(
            {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        )


@dataclass
class Living(Front):
    """The running adapter. ``place`` holds its settings file and its scripts."""

    place: Path

    def ran(self) -> list[str]:
        """What the scripts of a test wrote down, in its order."""
        notes = self.place / "ran"
        return notes.read_text().split() if notes.exists() else []

    @contextlib.asynccontextmanager
    async def speaker(self, version: str = ERAS[0], path: str = "/mcp") -> AsyncIterator[Speaker]:
        """A client that is connected and, in the legacy era, has a session."""
        async with RawClient(self.port) as raw:
            if version != MODERN_VERSION:
                await raw.initialize(initialize_body(version), path=path)
            yield Speaker(raw, path, version)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        version: str = ERAS[0],
        path: str = "/mcp",
        **params: Any,
    ) -> Answer:
        """One call of a client of its own."""
        async with self.speaker(version, path) as speaker:
            return await speaker.call(tool, arguments, headers, **params)


NOTING = """
def note(word):
    from pathlib import Path
    with Path(__file__).with_name("ran").open("a") as notes:
        notes.write(word + "\\n")

"""
"""What scripts begin with: by ``note`` they tell what of them ran."""


def furnished(place: Path, settings: str, **scripts: str) -> Path:
    """The folder with the settings and ``scripts`` by the name of their module, which may call ``note(word)``.

    Returns the settings file.
    """
    place.mkdir(parents=True, exist_ok=True)
    for name, text in scripts.items():
        (place / f"{name}.py").write_text(NOTING + text)
    config = place / "config.yaml"
    config.write_text(settings)
    return config


def built(
    config: Path,
    environ: Mapping[str, str] | None = None,
    said: Mapping[str, str] | None = None,
    store: Store | None = None,
) -> App:
    """The adapter on a settings file, not yet running; ``said`` are flags of the command line, by dotted keys.

    ``store`` is its state, where it is not the one of the settings.
    """
    flags = {
        "core.port": "0",
        "core.shutdown_grace_seconds": "0",
        "core.upstream_ping.enabled": "false",
        "storage.root": str(config.parent / "files"),
        **(said or {}),
    }
    return build(load(config, overrides=flags, environ=environ or {}), store=store)


@contextlib.asynccontextmanager
async def living(
    place: Path,
    settings: str,
    environ: Mapping[str, str] | None = None,
    *,
    scripts: Mapping[str, str] | None = None,
    said: Mapping[str, str] | None = None,
    store: Store | None = None,
) -> AsyncIterator[Living]:
    """The adapter on ``settings``, YAML, as long as the block lasts; ``environ`` fills its ``${…}``."""
    config = furnished(place, settings, **(scripts or {}))
    async with running(app := built(config, environ, said, store)) as (_, port):
        yield Living(app, port, place)
