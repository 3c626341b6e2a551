"""Questions of a server, answered on standard input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.commands.client.speaking import Json, Speaking, browser, run, speaking, text
from tests.edge.raw import Exchange, event

FORM: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your \x1b[31mname"},
        "age": {"type": "integer", "description": "In years"},
        "quiet": {"type": "boolean"},
        "room": {"type": "string", "enum": ["s", "l"], "default": "l"},
        "view": {
            "type": "string",
            "oneOf": [{"const": "sea", "title": "The sea"}, {"const": "hill", "title": "Hills"}],
        },
        "extras": {"type": "array", "items": {"type": "string", "enum": ["bike", "boat"]}},
        "more": {"type": "string"},
    },
    "required": ["name", "age"],
}


def asking(**params: Any) -> Any:
    """A tool that asks, and gives back what it is answered."""

    async def call(exchange: Exchange, server: Speaking) -> None:
        await exchange.begin_stream()
        answer = await server.ask(exchange, 99, **params)
        await exchange.chunk(
            event(text(exchange, orjson.dumps(answer, option=orjson.OPT_SORT_KEYS).decode()))
        )
        await exchange.end_stream()

    return call


async def answered(place: Path, stdin: str, **params: Any) -> tuple[Json, str]:
    """What the server is told, and what was asked."""
    async with speaking(asking(**params)) as server:
        done = await run(place, "call", server.url, "paint", "what=x", stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stderr
    return orjson.loads(done.stdout), done.stderr


async def test_a_form_is_filled_field_by_field(tmp_path: Path) -> None:
    """A wrong value is asked for again, an empty line leaves a field out or takes its default."""
    lines = ("perhaps", "y", "", "Ada", "old", "36", "yes", "", "hill", "bike, boat", "")
    answer, asked = await answered(
        tmp_path, "\n".join(lines) + "\n", message="Who \x1b[2Jare you?", requestedSchema=FORM
    )
    content = {
        "name": "Ada",
        "age": 36,
        "quiet": True,
        "room": "l",
        "view": "hill",
        "extras": ["bike", "boat"],
    }
    assert answer == {"action": "accept", "content": content}
    for says in (
        "The server asks: Who \\u001b[2Jare you?\n",
        "Your \\u001b[31mname:",
        "age – In years: age takes integer, not old.\n",
        '[s, l] (Return for "l"):',
        "[sea: The sea, hill: Hills]:",
        "[several of bike, boat]:",
    ):
        assert says in asked, asked


@pytest.mark.parametrize(
    ("stdin", "action"),
    [
        ("", "cancel"),
        ("y\n", "cancel"),
        ("y\nAda\nx\nx\nx\nx\nx\n", "cancel"),
        ("n\n", "decline"),
        ("?\n" * 9, "cancel"),
    ],
)
async def test_a_form_can_be_declined_and_left(tmp_path: Path, stdin: str, action: str) -> None:
    """The end of the input, and nonsense without end, cancel it."""
    answer, _ = await answered(tmp_path, stdin, message="Who?", requestedSchema=FORM)
    assert answer == {"action": action}


async def test_a_page_is_opened_in_the_browser(tmp_path: Path) -> None:
    """When the person agrees; the answer is given when they are back."""
    address = "https://login.example/?a=1"
    opens = browser(tmp_path, "open('opened', 'w').write(url)")
    question = {"mode": "url", "message": "Sign\n  in", "url": address, "elicitationId": "1"}
    async with speaking(asking(**question)) as server:
        call = ("call", server.url, "paint", "what=x")
        done = await run(tmp_path, *call, stdin="n\n", BROWSER=opens)
        assert done.stdout == '{"action":"decline"}\n' and not (tmp_path / "opened").exists()
        done = await run(tmp_path, *call, stdin="y\n\n", BROWSER=opens)
        assert done.stdout == '{"action":"accept"}\n' and (tmp_path / "opened").read_text() == address
        assert f"The server asks you to visit a page: Sign in\n  {address}\n" in done.stderr


async def test_only_web_pages_are_opened(tmp_path: Path) -> None:
    """A file or a script of a stranger is no page."""
    answer, asked = await answered(
        tmp_path, "y\n\n", mode="url", message="See", url="file:///etc/passwd", elicitationId="1"
    )
    assert answer == {"action": "decline"} and "This is no address of a web page" in asked


async def test_a_call_that_first_needs_a_visit_is_sent_again(tmp_path: Path) -> None:
    """As often as three times, when the person has been there."""

    async def call(exchange: Exchange, server: Speaking) -> None:
        link = {"mode": "url", "message": "Sign in", "url": "https://login.example/", "elicitationId": "1"}
        error = {"code": -32042, "message": "Sign in first", "data": {"elicitations": [link]}}
        if len(server.arguments) > 1 and server.arguments[0] == {"what": "patience"}:
            await exchange.json(text(exchange, "signed in"))
        else:
            await exchange.json(
                orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "error": error})
            )

    opens = browser(tmp_path, "")
    async with speaking(call) as server:
        done = await run(tmp_path, "call", server.url, "paint", "what=patience", stdin="y\n\n", BROWSER=opens)
        assert (done.returncode, done.stdout) == (0, "signed in\n"), done.stderr
    async with speaking(call) as server:
        done = await run(
            tmp_path, "call", server.url, "paint", "what=never", stdin="y\n\n" * 9, BROWSER=opens
        )
        assert (done.returncode, len(server.arguments)) == (1, 4) and "Sign in first" in done.stderr
        done = await run(tmp_path, "call", server.url, "paint", "what=never", stdin="n\n", BROWSER=opens)
        assert (done.returncode, len(server.arguments)) == (1, 5)
