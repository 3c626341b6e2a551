"""Changed settings are put into force while the adapter serves."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapter.app import App, build, running
from adapter.app.reload import SettingsDigests, SettingsReload
from adapter.edge.http.listener import Grace
from adapter.settings.file.load import load
from tests.edge.raw import (
    Exchange,
    RawClient,
    RawUpstream,
    call_body,
    initialize_result,
    modern_body,
    modern_fields,
    read_chunk,
    result,
)
from tests.waiting import until

PATIENCE = 120.0

PID = """
import json, os, sys
for message in map(json.loads, sys.stdin):
    number, method = message.get("id"), message.get("method")
    if number is None: continue
    if method == "initialize":
        found = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "pid", "version": "1"}}
    elif method == "tools/list": found = {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]}
    else: found = {"content": [{"type": "text", "text": str(os.getpid())}]}
    print(json.dumps({"jsonrpc": "2.0", "id": number, "result": found}), flush=True)
"""


class Scripted:
    """Answers calls of ``tool`` with its ``text``, and calls of ``wait`` when ``go`` is set; a GET stream is silent."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.go = asyncio.Event()
        self.waiting = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.head.method == "GET":
            await exchange.begin_stream()
            await exchange.gone()
            return
        message: dict[str, Any] = exchange.message
        if message.get("method") == "initialize":
            await exchange.json(initialize_result(message["id"]), "Mcp-Session-Id: upstream")
            return
        if message.get("params", {}).get("name") == "wait":
            self.waiting.set()
            await self.go.wait()
        await exchange.json(result(message.get("id", 0), self.text + (exchange.head.get("x-told") or "")))


class Reloaded:
    """An adapter with servers by their ids, and a way to change them."""

    def __init__(self, app: App, port: int, servers: dict[str, dict[str, Any]], core: dict[str, Any]) -> None:
        self.app = app
        self.port = port
        self.servers = servers
        self.core = core
        self.reload = SettingsReload(app)

    async def apply(self, **more: Any) -> bool:
        """Put what the servers and ``core`` are now into force."""
        return await self.reload.apply(settings_of(self.servers, self.core, **more))

    def client(self) -> RawClient:
        return RawClient(self.port)

    async def health(self) -> dict[str, Any]:
        async with self.client() as client:
            _, body = await client.request("GET", path="/healthz")
        found: dict[str, Any] = json.loads(body)
        return found


def settings_of(servers: dict[str, dict[str, Any]], core: dict[str, Any], **more: Any) -> Any:
    entries = [{"id": name, **entry} for name, entry in servers.items()]
    return load(None, overrides={"core": core, "servers": entries, **more}, environ={})


@asynccontextmanager
async def reloaded(servers: dict[str, dict[str, Any]], **core: Any) -> AsyncIterator[Reloaded]:
    core = {"port": 0, "upstream_ping": {"enabled": False}, **core}
    app = build(settings_of(servers, core))
    async with running(app, Grace(PATIENCE)) as (_, port):
        one = Reloaded(app, port, servers, core)
        await one.reload.begin()
        yield one


def over_http(up: RawUpstream, **more: Any) -> dict[str, Any]:
    return {"upstream": {"url": up.url}, **more}


def keyless(up: RawUpstream, place: Path) -> dict[str, Any]:
    """A server that cannot be built: its key is not there."""
    key = {"type": "client_credentials", "token_endpoint": "https://issuer.example/token"}
    key |= {"client_id": "me", "client_authentication": "private_key_jwt"}
    key |= {"private_key_file": str(place / "no")}
    return {"upstream": {"url": up.url, "auth": key}}


def over_stdio(**more: Any) -> dict[str, Any]:
    return {"upstream": {"transport": "stdio", "command": sys.executable, "args": ["-c", PID]}, **more}


async def called(client: RawClient, path: str, name: str = "tool") -> str:
    """The text of a call's result, or of its error; of the stateless era outside of a session."""
    body, fields = (call_body(name), {}) if client.session else (modern_body(name), modern_fields(name))
    head, answer = await client.request("POST", body, path, **fields)
    if answer.startswith((b"event", b"data", b"id")):
        answer = answer.partition(b"data: ")[2]
    told = json.loads(answer)
    if "error" in told or head.status != 200:
        return str(told["error"]["message"] if "error" in told else told["detail"])
    return str(told["result"]["content"][0]["text"])


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.deep)])
async def test_what_did_not_change_keeps_session_process_and_stream(times: int) -> None:
    """A server over stdio and one over HTTP do not notice that another one changes, again and again, under load."""
    async with RawUpstream(Scripted("kept")) as kept, RawUpstream(Scripted("other")) as other:
        servers = {"kept": over_http(kept), "process": over_stdio(), "other": over_http(other)}
        async with reloaded(servers) as one, one.client() as process, one.client() as stream:
            await process.initialize(path="/mcp/process")
            pid = await called(process, "/mcp/process", "pid")
            await stream.initialize(path="/mcp/kept")
            await stream.send("GET", path="/mcp/kept", accept="text/event-stream")
            assert (await stream.head()).status == 200
            done, over = 0, asyncio.Event()

            async def load_on(path: str, expected: str) -> None:
                nonlocal done
                async with one.client() as client:
                    while not over.is_set():
                        assert await called(client, path) == expected
                        done += 1

            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                for path, expected in (("/mcp/kept", "kept"), ("/mcp/other", "other")):
                    group.create_task(load_on(path, expected))
                before = one.app.servers["kept"], one.app.servers["process"]
                for number in range(times):
                    servers["other"]["tool_defaults"] = {"tool_call_timeout_seconds": 100 + number}
                    was = done
                    assert await one.apply()
                    while done < was + 4:
                        await asyncio.sleep(0)
                over.set()
            assert (one.app.servers["kept"], one.app.servers["process"]) == before
            assert await called(process, "/mcp/process", "pid") == pid
            assert not stream.reader.at_eof()
            assert (await one.health())["settings"]["state"] == "in_force"


async def test_nothing_of_a_server_that_left_stays() -> None:
    """Neither its own parts nor those of its bridges, and no part of another one goes."""
    async with (
        RawUpstream(Scripted("one")) as up,
        reloaded({"one": over_http(up), "two": over_http(up)}) as adapter,
    ):
        parts = {"one": 1, "one#legacy": 2, "one#modern": 3, "two": 4, "two#legacy": 5}
        adapter.app.by_server.append(parts)
        del adapter.servers["one"]
        assert await adapter.apply()
        assert parts == {"two": 4, "two#legacy": 5}


async def test_a_server_that_changed_is_called_as_the_settings_say_now() -> None:
    """A client that is connected meets the new upstream with its next call, in the same session."""
    async with RawUpstream(Scripted("old")) as old, RawUpstream(Scripted("new")) as new:
        servers = {"one": over_http(old)}
        async with reloaded(servers) as one, one.client() as client:
            assert await called(client, "/mcp/one") == "old"
            servers["one"] = {"upstream": {"url": new.url, "static_headers": {"X-Told": "s"}}}
            assert await one.apply() and await called(client, "/mcp/one") == "news"


async def test_a_process_of_a_server_that_changed_ends() -> None:
    """Another process serves its clients, in the sessions that they have, and the one before is gone."""
    servers = {"one": over_stdio()}
    async with reloaded(servers) as one, one.client() as client:
        await client.initialize(path="/mcp/one")
        pid = await called(client, "/mcp/one", "pid")
        servers["one"] = over_stdio(tool_defaults={"tool_call_timeout_seconds": 50})
        assert await one.apply()
        assert await called(client, "/mcp/one", "pid") not in ("", pid)
        await until(lambda: not (Path(f"/proc/{pid}").exists()), PATIENCE)


async def test_a_server_that_left_says_so() -> None:
    """Its clients get 404 with a sentence; one that comes is served, and an own mount path may be another's."""
    async with RawUpstream(Scripted("one")) as first, RawUpstream(Scripted("two")) as second:
        servers = {"one": over_http(first)}
        async with reloaded(servers) as one, one.client() as client:
            assert await called(client, "/mcp/two") == "Nothing is served here."
            servers["two"] = servers.pop("one")
            assert await one.apply()
            assert await called(client, "/mcp/two") == "one"
            assert "has left the settings" in await called(client, "/mcp/one")
            servers["one"] = over_http(second)
            assert await one.apply()
            assert await called(client, "/mcp/one") == "two"
            assert [each["server_id"] for each in (await one.health())["servers"]] == ["two", "one"]


async def test_a_changed_default_changes_the_servers_that_use_it() -> None:
    """A server with a value of its own stays as it is."""
    async with RawUpstream(Scripted("one")) as up:
        own = {"tool_defaults": {"tool_call_timeout_seconds": 5}}
        servers = {"one": over_http(up), "two": over_http(up, **own)}
        async with reloaded(servers) as one:
            before = dict(one.app.servers)
            one.core["defaults"] = {"tool_call_timeout_seconds": 7}
            assert await one.apply()
            assert one.app.servers["one"].timeouts.tool_call == 7
            assert one.app.servers["two"] is before["two"]


async def test_a_key_of_the_process_changes_nothing() -> None:
    """The server that changed with it stays too; health names the key, and a change without it counts again."""
    async with RawUpstream(Scripted("one")) as up, RawUpstream(Scripted("two")) as other:
        servers = {"one": over_http(up)}
        async with reloaded(servers) as one, one.client() as client:
            servers["two"] = over_http(other)
            assert not await one.apply(sessions={"max_active": 7})
            assert await called(client, "/mcp/two") == "Nothing is served here."
            told = (await one.health())["settings"]
            assert (told["state"], told["keys"]) == ("needs_restart", ["sessions.max_active"])
            assert await one.apply()
            assert await called(client, "/mcp/two") == "two"


async def test_a_server_that_cannot_be_built_leaves_all_as_it_is(tmp_path: Path) -> None:
    """Nothing of a change is in force where a part of it fails."""
    async with RawUpstream(Scripted("one")) as up, RawUpstream(Scripted("two")) as other:
        servers = {"one": over_http(up), "last": over_http(up)}
        async with reloaded(servers) as one, one.client() as client:
            before = dict(one.app.servers)
            servers["one"] = over_http(other)
            servers["last"] = keyless(up, tmp_path)
            assert not await one.apply()
            assert dict(one.app.servers) == before
            assert await called(client, "/mcp/one") == "one"
            assert (await one.health())["settings"]["state"] == "refused"


async def test_a_call_under_way_ends_at_the_server_it_began_with() -> None:
    """Calls after it go to the new one at once, and the client of a stream is sent back."""
    slow, quick = Scripted("old"), Scripted("new")
    async with RawUpstream(slow) as old, RawUpstream(quick) as new:
        servers = {"one": over_http(old)}
        async with reloaded(servers) as one, one.client() as client, one.client() as other:
            await client.send("POST", modern_body("wait"), "/mcp/one", **modern_fields("wait"))
            await other.initialize(path="/mcp/one")
            await other.send("GET", path="/mcp/one", accept="text/event-stream")
            assert (await other.head()).status == 200
            await slow.waiting.wait()
            servers["one"] = over_http(new)
            assert await one.apply()
            async with asyncio.timeout(PATIENCE):
                while await read_chunk(other.reader):
                    """The stream ends."""
                assert await called(other, "/mcp/one") == "new"
                slow.go.set()
                assert (await client.head()).status == 200
                assert b"old" in await client.reader.readuntil(b"old")


async def test_a_call_that_outlasts_the_grace_is_told() -> None:
    """It is answered with a sentence, and its connection goes on."""
    slow, quick = Scripted("old"), Scripted("new")
    async with RawUpstream(slow) as old, RawUpstream(quick) as new:
        servers = {"one": over_http(old)}
        async with reloaded(servers, shutdown_grace_seconds=0) as one, one.client() as client:
            await client.send("POST", modern_body("wait"), "/mcp/one", **modern_fields("wait"))
            await slow.waiting.wait()
            servers["one"] = over_http(new)
            assert await one.apply()
            async with asyncio.timeout(PATIENCE):
                await client.head()
                assert b"have changed" in await client.reader.readuntil(b"have changed")


async def test_two_changes_at_once_are_put_into_force_in_their_order() -> None:
    """The last one holds."""
    async with RawUpstream(Scripted("one")) as first, RawUpstream(Scripted("two")) as second:
        servers = {"one": over_http(first)}
        async with reloaded(servers) as one, one.client() as client:
            before = settings_of({"one": over_http(second)}, one.core)
            after = settings_of({"two": over_http(first)}, one.core)
            assert all(await asyncio.gather(one.reload.apply(before), one.reload.apply(after)))
            assert [*one.app.servers] == ["two"]
            assert await called(client, "/mcp/two") == "one"


async def test_a_merged_mount_follows_its_servers() -> None:
    """It comes, gets another server and loses one while its client keeps its session; one that left says so."""
    async with (
        RawUpstream(Scripted("old")) as old,
        RawUpstream(Scripted("new")) as new,
        RawUpstream(Scripted("kept")) as kept,
    ):
        servers = {"one": over_http(old), "two": over_http(kept)}
        mounts = [{"id": "all", "servers": ["*"]}]
        async with reloaded(servers) as one, one.client() as client, one.client() as stream:
            assert await one.apply(mounts=mounts)
            await client.initialize(path="/mcp/all")
            assert await called(client, "/mcp/all", "one_tool") == "old"
            assert await called(client, "/mcp/all", "two_tool") == "kept"
            stream.session = client.session
            await stream.send("GET", path="/mcp/all", accept="text/event-stream")
            assert (await stream.head()).status == 200
            before = one.app.servers["two"]
            servers["one"], servers["three"] = over_http(new), over_http(new)
            assert await one.apply(mounts=mounts)
            async with asyncio.timeout(PATIENCE):
                while await read_chunk(stream.reader):
                    """The stream ends, and its client comes back."""
            assert await called(client, "/mcp/all", "one_tool") == "new"
            assert await called(client, "/mcp/all", "two_tool") == "kept"
            assert await called(client, "/mcp/all", "three_tool") == "new"
            assert one.app.servers["two"] is before
            (merged,) = one.app.merged
            assert await one.apply(mounts=[*mounts, {"id": "two_only", "servers": ["two"]}])
            assert merged is one.app.merged[0]
            del servers["one"]
            assert await one.apply()
            assert "has left the settings" in await called(client, "/mcp/all", "two_tool")
            assert "mounts" not in await one.health()


def with_everything(place: Path) -> dict[str, Any]:
    """Sections that have most parts of the adapter built."""
    return {
        "storage": {"root": str(place / "data")},
        "state_persistence": {"type": "disk"},
        "console": {"enabled": True},
        "telemetry": {"enabled": True, "prometheus": {"enabled": True}},
        "connectors": [{"name": "db", "connector": "sqlite", "connection_string": str(place / "shop.db")}],
        "sessions": {"missing_id": "principal"},
    }


def hosted(text: str) -> dict[str, Any]:
    """A server with one hosted tool."""
    tool = {"name": "say", "use": "db", "statement": f"SELECT '{text}' AS word"}
    return {"upstream": {"transport": "hosted"}, "tools": {"define": [tool]}}


def taker(up: RawUpstream, *tools: str) -> dict[str, Any]:
    """A server with tools that take files, with stages and pings."""
    adapter = {"type": "upload_consumer", "tools": list(tools), "file_path_argument": "path"}
    stages = {"tool": {"limits": {"concurrency": {"max_active": 3, "max_queue": 3}}}}
    return over_http(up, adapters=[adapter], stages=stages, upstream_ping={"enabled": True})


async def fetched(client: RawClient, path: str) -> bytes:
    head, body = await client.request("GET", path=path)
    assert head.status == 200, body
    return body


async def test_all_parts_follow_a_change(tmp_path: Path) -> None:
    """Console, metrics, files, hosted tools, stages and shared sessions know the servers of now, and no others."""
    (tmp_path / "shop.db").touch()
    more = with_everything(tmp_path)
    async with RawUpstream(Scripted("one")) as up:
        servers = {"hosted": hosted("before"), "files": taker(up, "take"), "leaves": taker(up, "take")}
        core = {"port": 0, "upstream_ping": {"enabled": False}}
        app = build(settings_of(servers, core, **more))
        async with running(app, Grace(PATIENCE)) as (_, port):
            one = Reloaded(app, port, servers, core)
            await one.reload.begin()
            async with one.client() as client:
                told = json.loads(await fetched(client, "/explorer/-/servers"))
                assert [each["id"] for each in told] == ["hosted", "files", "leaves"]
                assert "before" in await called(client, "/mcp/hosted", "say")
                assert await called(client, "/mcp/files") == "one"
                kept = dict(one.app.servers)
                servers["hosted"] = hosted("after")
                servers["new"] = taker(up, "take", "other")
                del servers["leaves"]
                assert await one.apply(**more), (await one.health())["settings"]
                assert one.app.servers["files"] is kept["files"]
                assert "after" in await called(client, "/mcp/hosted", "say")
                assert await called(client, "/mcp/new") == "one"
                told = json.loads(await fetched(client, "/explorer/-/servers"))
                assert [each["id"] for each in told] == ["hosted", "files", "new"]
                yaml = json.loads(await fetched(client, "/explorer/-/config"))["yaml"]
                assert "id: new" in yaml and "id: leaves" not in yaml
                assert b'server_id="new"' in await fetched(client, "/metrics")
                assert b"/mcp/new" in await fetched(client, "/")
                for server, left in (("new", False), ("leaves", True)):
                    head, body = await client.request("POST", path=f"/upload/{server}")
                    assert (head.status == 404) == left, body
                health = await one.health()
                assert [each["server_id"] for each in health["servers"]] == ["hosted", "files", "new"]
                assert [*one.app.server_parts.monitors] == ["files", "new"]
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*one.app.retiring)


def counted(app: App, name: str, **labels: str) -> float:
    """What the metrics show for a name and labels, whatever the others are."""
    assert app.metering is not None
    found = [each for family in app.metering.registry.collect() for each in family.samples]
    return sum(each.value for each in found if each.name == name and labels.items() <= each.labels.items())


async def test_metrics_follow_a_change_and_not_a_refused_one(tmp_path: Path) -> None:
    """A server that was built anew, or was to be, is counted on; of one that left no state stays."""
    more = {"telemetry": {"prometheus": {"enabled": True}}}
    sent, used = "mcp_client_operation_duration_seconds_count", "adapter_upstream_connections_used_total"
    async with RawUpstream(Scripted("one")) as up:
        servers = {"one": over_http(up), "leaves": over_http(up)}
        core = {"port": 0, "upstream_ping": {"enabled": False}}
        app = build(settings_of(servers, core, **more))
        async with running(app, Grace(PATIENCE)) as (_, port):
            one = Reloaded(app, port, servers, core)
            await one.reload.begin()
            async with one.client() as client:
                assert await called(client, "/mcp/leaves") == "one"
                servers["one"] = over_http(up, tool_defaults={"tool_call_timeout_seconds": 50})
                servers["two"] = keyless(up, tmp_path)
                assert not await one.apply(**more)
                assert await called(client, "/mcp/one") == "one"
                await fetched(client, "/metrics")
                sent_before, used_before = (counted(app, each, server_id="one") for each in (sent, used))
                assert sent_before and used_before
                one.servers = {"one": over_http(up, tool_defaults={"tool_call_timeout_seconds": 50})}
                assert await one.apply(**more)
                assert await called(client, "/mcp/one") == "one"
                await fetched(client, "/metrics")
                assert counted(app, sent, server_id="one") > sent_before
                assert counted(app, used, server_id="one") > used_before
                assert counted(app, "adapter_upstream_connections", server_id="leaves") == 0


async def test_a_file_that_changes_while_the_adapter_starts_has_changed(tmp_path: Path) -> None:
    """What the settings say is noted before anything that they name is used."""
    code = tmp_path / "code.py"
    code.write_text("def say(payload):\n    return 1\n")
    tools = {"define": [{"name": "say", "handler": f"{code}#say"}]}
    servers = {"one": {"mount_path": "/mcp", "upstream": {"transport": "hosted"}, "tools": tools}}
    said = await SettingsDigests.of(settings_of(servers, {}))
    one = Reloaded(build(settings_of(servers, {})), 0, servers, {})
    code.write_text("def say(payload):\n    return 'another'\n")
    await one.reload.begin(said)
    assert not await one.apply() and one.reload.needs_restart
