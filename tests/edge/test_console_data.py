"""What the console tells, to whom, and what it never tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.version import VERSION
from tests.edge.conftest import done
from tests.edge.consoling import (
    AGENT,
    AUTH,
    DATA,
    OPERATOR,
    TOKENS,
    VIEWER,
    Console,
    Shop,
    StartConsole,
    bearer,
    listed,
    tool,
)
from tests.edge.filing import FORM, file_part, form, send_form
from tests.edge.raw import Exchange, RawClient, call_body
from tests.relay.sessions.test_health_probe import PING

TOPICS = (
    "/me",
    "/servers",
    "/sessions",
    "/files",
    "/exchanges",
    "/activity",
    "/config",
    "/mounts",
    "/pins/raw",
    "/connect/raw",
)
UPLOADS = {"adapters": [{"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}]}
READ = tool("read", inputSchema={"type": "object", "properties": {"path": {"type": "string"}}})


async def upload(client: RawClient, token: str | None = None, filename: str = "letter.txt") -> Any:
    """Upload a file into the client's own session."""
    _, answer = await send_form(
        client, "/upload/raw", form(file_part(b"Dear Ann", filename)), content_type=FORM, **bearer(token)
    )
    return answer


# --- who asks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TOPICS)
async def test_strangers_are_told_nothing(console: StartConsole, path: str) -> None:
    """Every route asks for a token where there are any, and for a Host and an Origin that are served here."""
    async with console(Shop(READ), core={"auth": AUTH}) as (_, front, _):
        head, answer = await front.ask("GET", path)
        assert (head.status, list(answer)) == (401, ["detail"])
        assert head["www-authenticate"].startswith("Bearer")
        head, _ = await front.ask("GET", path, **bearer("agent-token2"))
        assert head.status == 401
        head, _ = await front.ask("GET", path, host="evil.example", **bearer(VIEWER))
        assert head.status == 421
        head, _ = await front.ask("GET", path, origin="https://evil.example", **bearer(VIEWER))
        assert head.status == 403
        head, _ = await front.ask("GET", path, **bearer(VIEWER))
        assert head.status == 200
        assert head["content-type"] == "application/json" and head["x-content-type-options"] == "nosniff"
        assert head["cache-control"] == "no-store"


async def test_who_looks_is_told_who_that_is(console: StartConsole) -> None:
    """Operators are tokens that console.operators names."""
    async with console(Shop(READ), core={"auth": AUTH}) as (_, front, _):
        assert await front.get("/me", OPERATOR) == {
            "principal": "operator",
            "operator": True,
            "title": "MCP Tool Explorer",
            "allow_execute": False,
            "version": VERSION,
            "auth": True,
        }
        for name, token in TOKENS.items():
            me = await front.get("/me", token)
            assert (me["principal"], me["operator"]) == (name, name in ("operator", "chief"))


async def test_on_loopback_without_tokens_everybody_is_an_operator(console: StartConsole) -> None:
    """There is nobody to tell from the others."""
    async with console(Shop(READ)) as (_, front, _):
        me = await front.get("/me")
        assert (me["principal"], me["operator"], me["auth"]) == ("anonymous", True, False)


async def test_what_is_not_there_is_not_found(console: StartConsole) -> None:
    """No other path and no other method is served below the data's; a GET changes nothing, for there is none.

    The tools' API says of the server ``-`` what it says of any that it does not have.
    """
    async with console(Shop(READ)) as (_, front, _):
        for path in ("/nothing", "/pins/other", "/pins/raw/else", "/me/more"):
            head, _ = await front.ask("GET", path)
            assert head.status in (404, 405), path
        for method, path in (
            ("POST", "/me"),
            ("DELETE", "/sessions"),
            ("GET", "/pins/raw/accept"),
            ("PUT", "/pins/raw"),
        ):
            head, _ = await front.ask(method, path)
            assert head.status == 405, path
        for path in ("/meta", "/tools", "/prompts", "/tools/read"):
            head, answer = await front.ask("GET", path)
            assert (head.status, answer) == (404, {"error": "Server not found: -"}), path
        async with front.client() as client:
            await client.send("HEAD", b"", f"{DATA}/exchanges", accept="text/event-stream")
            head = await client.head()
            assert (head.status, head["content-type"]) == (200, "application/json")


# --- servers --------------------------------------------------------------------------------------------------


async def test_servers_say_how_they_are(console: StartConsole) -> None:
    """Before anybody has seen its tools, nothing is known of them; each ping leaves a point."""
    core = {"upstream_ping": {**PING, "enabled": True}}
    async with console(Shop(READ), server=UPLOADS, core=core) as (up, front, agent):
        (told,) = await eventually(front, "/servers", lambda told: len(told[0]["history"]) >= 2)
        history = told.pop("history")
        assert told.pop("latency_ms") > 0
        assert told == {
            "id": "raw",
            "mount": "/mcp",
            "transport": "streamable_http",
            "era": "legacy",
            "status": "ok",
            "condition": {"look": "ok", "notes": [], "last_error": None},
            "checked": True,
            "breaker": "closed",
            "tools": None,
            "drift": 0,
            "remembered": False,
            "met": None,
            "missing": [],
            "helper": "raw_get_upload_url",
            "uploads": True,
        }
        assert all(ms > 0 for _, ms in history)
        await agent.initialize()
        await listed(agent)
        # The server's own, the one that gives out upload URLs, and the one that tells what became of them.
        assert (await front.get("/servers"))[0]["tools"] == 3
        await up.stop()
        (gone,) = await eventually(front, "/servers", lambda told: told[0]["breaker"] != "closed")
        assert gone["status"] == "unhealthy"
        assert gone["history"][-1][1] is None
        unreachable, refused = gone["condition"]["notes"]
        assert (gone["condition"]["look"], unreachable["kind"], refused["kind"]) == (
            "bad",
            "unreachable",
            "breaker",
        )
        assert history[0][0] <= unreachable["at"] and unreachable["text"]
        assert gone["condition"]["last_error"]["by"] == "check"


async def eventually(front: Console, path: str, holds: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(20):
        while not holds(told := await front.get(path)):
            await asyncio.sleep(0.005)
    return told


async def test_a_server_that_is_not_pinged_is_taken_to_be_well(console: StartConsole) -> None:
    """There is nothing to plot then."""
    async with console(Shop(READ)) as (_, front, _):
        (told,) = await front.get("/servers")
        assert (told["status"], told["breaker"], told["era"], told["latency_ms"]) == ("ok", None, None, None)
        assert (told["history"], told["helper"], told["uploads"]) == ([], None, False)


# --- sessions and files ---------------------------------------------------------------------------------------


async def test_viewers_see_their_own_sessions_and_operators_all(console: StartConsole) -> None:
    """Whose an id is shows by name; calls in flight are counted."""
    hold = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        await hold.wait()
        await done(exchange)

    mode = {"tool_definition_pinning": {"mode": "off"}}
    async with console(wait, core={"auth": AUTH, **mode}) as (up, front, agent), front.client() as viewer:
        await agent.initialize(**bearer(AGENT))
        await viewer.initialize(**bearer(VIEWER))
        await agent.send("POST", call_body(), **bearer(AGENT))
        await up.arrived("tools/call")
        own = await front.get("/sessions", VIEWER)
        assert [(each["principal"], each["own"]) for each in own] == [("viewer", True)]
        every = await front.get("/sessions", OPERATOR)
        assert {each["principal"]: (each["own"], each["in_flight"]) for each in every} == {
            "agent": (False, 1),
            "viewer": (False, 0),
        }
        assert own[0] in [{**each, "own": True} for each in every]
        assert (own[0]["server"], own[0]["era"]) == ("raw", "legacy")
        assert own[0]["created"] <= own[0]["last_seen"]
        hold.set()
        await agent.head()


async def test_files_are_named_to_their_owners_alone(console: StartConsole, tmp_path: Path) -> None:
    """An operator learns how much others hold, and nobody else even that."""
    quota = {"max_total_session_size": "1Mi"}
    async with console(Shop(READ), server=UPLOADS, core={"auth": AUTH}, sessions=quota) as (_, front, agent):
        await agent.initialize(**bearer(AGENT))
        uploaded = (await upload(agent, AGENT))["upload"]
        (scope,) = (await front.get("/files", AGENT))["scopes"]
        (shown,) = scope.pop("files")
        assert scope == {
            "scope": (await front.get("/sessions", AGENT))[0]["scope"],
            "used": 8,
            "quota": 1024**2,
            "count": 1,
            "own": True,
        }
        assert shown.pop("expires_at") > 0
        assert shown == {
            "kind": "upload",
            "uri": uploaded["upload_handle"],
            "filename": "letter.txt",
            "size": 8,
            "media_type": "text/plain",
            "server": "raw",
            "changed": False,
        }
        (stored,) = tmp_path.rglob("letter.txt")
        stored.write_bytes(b"scribble")
        params = {"name": "read", "arguments": {"path": uploaded["upload_handle"]}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        _, told = await agent.request("POST", orjson.dumps(message), **bearer(AGENT))
        assert b"changed by something other" in told
        (scope,) = (await front.get("/files", AGENT))["scopes"]
        (shown,) = scope.pop("files")
        assert shown["changed"] is True
        assert (await front.get("/files", VIEWER)) == {"scopes": [], "schemes": ["upload://", "artifact://"]}
        assert (await front.get("/files", OPERATOR))["scopes"] == [{**scope, "own": False, "files": []}]


async def test_names_that_are_no_text_are_told_all_the_same(console: StartConsole) -> None:
    """A file is called what its sender called it."""
    async with console(Shop(READ), server=UPLOADS) as (_, front, agent):
        await agent.initialize()
        await upload(agent, filename='<img src=x onerror="alert(1)">\N{SNOWMAN}.txt'.replace('"', "'"))
        (scope,) = (await front.get("/files"))["scopes"]
        assert scope["files"][0]["filename"].startswith("<img src=x")


# --- what is never told ---------------------------------------------------------------------------------------


async def test_no_answer_holds_a_session_a_token_or_a_path_of_the_store(
    console: StartConsole, tmp_path: Path
) -> None:
    """Not to an operator either, and not the digests that follow from tokens."""
    server = {**UPLOADS, "upstream": {"static_headers": {"X-Key": "hush"}}}
    async with console(Shop(READ), server=server, core={"auth": AUTH}) as (_, front, agent):
        await agent.initialize(**bearer(AGENT))
        await listed(agent, AGENT)
        await upload(agent, AGENT)
        secrets = [*TOKENS.values(), agent.session, "upstream-1", "hush", str(tmp_path), "store", "sqlite"]
        secrets += [session.key for session in front.app.sessions.opened()]
        secrets += [session.principal for session in front.app.sessions.opened()]
        answers = b""
        async with front.client() as client:
            for token in TOKENS.values():
                for topic in TOPICS:
                    head, body = await client.request("GET", b"", f"{DATA}{topic}", **bearer(token))
                    assert head.status == 200
                    answers += body
                _, body = await client.request("POST", b"{}", f"{DATA}/pins/raw/accept", **bearer(token))
                answers += body
        assert b"letter.txt" in answers and b"max_total_session_size" in answers
        assert [
            secret for secret in secrets if str(secret).encode() in answers.replace(b"storage", b"")
        ] == []


async def test_the_configuration_is_told_as_it_is_in_force(console: StartConsole) -> None:
    """As text that could be written into a settings file, but for what is masked."""
    async with console(Shop(READ)) as (_, front, _):
        text = (await front.get("/config"))["yaml"]
        assert "operators:\n  - operator\n" in text and "root: '***'" in text
        assert orjson.dumps(text)
