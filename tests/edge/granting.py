"""An upstream that wants tokens, an authorization server that gives them, and people with browsers."""

from __future__ import annotations

import contextlib
import html
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from tests.edge.conftest import Adapter, StartAdapter, StartUpstream
from tests.edge.raw import (
    MODERN_META,
    Exchange,
    Head,
    RawUpstream,
    accepted,
    initialize_result,
    modern_body,
    modern_fields,
    result,
)
from tests.oauth.grants.scripted_issuer import ScriptedIssuer

BASE = "http://127.0.0.1:8932"
TOKENS = {"alice": "token-of-alice-0123456789abcdef", "bob": "token-of-bob-0123456789abcdef"}


@dataclass
class Browser:
    """A person's browser at the adapter: it keeps cookies, and fills in forms. ``token`` is what its person types."""

    front: Adapter
    token: str = ""
    cookies: dict[str, str] = field(default_factory=dict)

    async def get(self, url: str) -> tuple[Head, str]:
        return await self._sent("GET", url)

    async def post(self, url: str, form: dict[str, str], **fields: str) -> tuple[Head, str]:
        kind = {"content_type": "application/x-www-form-urlencoded"}
        return await self._sent("POST", url, urlencode(form).encode(), **kind, **fields)

    async def start(self, url: str) -> str:
        """Open a link and push the button; the URL at the authorization server that comes of it."""
        head, page = await self.get(url)
        assert head.status == 200, page
        head, page = await self.post(url, {"confirm": confirmation(page), "token": self.token})
        assert head.status == 200, page
        return html.unescape(first(r'href="([^"]+)"', page))

    async def _sent(self, method: str, url: str, body: bytes = b"", **fields: str) -> tuple[Head, str]:
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        async with self.front.client() as client:
            cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            head, answer = await client.request(method, body, path, cookie=cookie, **fields)
        for name, value in head.fields:
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        return head, answer.decode()


def confirmation(page: str) -> str:
    """The word in the form of a page."""
    return first(r'name="confirm" value="([^"]+)"', page)


def first(pattern: str, text: str) -> str:
    """The group of the first match."""
    found = re.search(pattern, text)
    assert found is not None, text
    return found[1]


def modern_meta(capabilities: dict[str, Any]) -> dict[str, Any]:
    """What a modern client with these says in ``_meta``."""
    return MODERN_META | {"io.modelcontextprotocol/clientCapabilities": capabilities}


@dataclass
class Scene:
    """Two callers of one server, whose upstream wants a token of each."""

    front: Adapter
    upstream: RawUpstream
    issuer: ScriptedIssuer

    async def call(self, who: str = "alice") -> dict[str, Any]:
        """A modern call of a client without any capability."""
        return await self.modern(who, {})

    async def modern(
        self, who: str, capabilities: dict[str, Any], params: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        message = orjson.loads(modern_body())
        message["params"] |= {**(params or {}), "_meta": modern_meta(capabilities)}
        fields = {"authorization": f"Bearer {TOKENS[who]}", **modern_fields()}
        async with self.front.client() as client:
            _, answer = await client.request("POST", orjson.dumps(message), **fields)
        found: dict[str, Any] = orjson.loads(answer)
        return found

    async def link(self, who: str = "alice") -> str:
        """The link in the answer to a call of somebody who has given no grant."""
        answer = await self.call(who)
        assert answer["result"]["isError"], answer
        return first(r"(http\S+)", answer["result"]["content"][0]["text"])

    def browser(self, who: str = "alice") -> Browser:
        return Browser(self.front, TOKENS[who])

    async def grant(self, who: str = "alice") -> None:
        """Give the grant, as the person ``who`` in their browser."""
        browser = self.browser(who)
        url = await browser.start(await self.link(who))
        head, page = await browser.get(self.issuer.consent(url, who))
        assert head.status == 200, page

    def seen_tokens(self) -> list[str]:
        """The tokens of all calls that the upstream has got, in order."""
        return [
            (each.head.get("authorization") or "").removeprefix("Bearer ")
            for each in self.upstream.calls("tools/call")
        ]


StartScene = Callable[..., AbstractAsyncContextManager[Scene]]


def protected(issuer: ScriptedIssuer) -> tuple[Callable[[Exchange], Any], Callable[[Exchange], Any]]:
    """The scripts of an upstream that answers with the name of the person whose token it was given."""

    async def person_of(exchange: Exchange) -> str | None:
        person = issuer.tokens.get((exchange.head.get("authorization") or "").removeprefix("Bearer "))
        if person is None:
            await exchange.answer(401, b"", 'WWW-Authenticate: Bearer error="invalid_token", scope="notes"')
        return person

    async def script(exchange: Exchange) -> None:
        if exchange.head.method == "GET" and "oauth-protected-resource" in exchange.head.first:
            host = exchange.head["host"]
            document = {"resource": f"http://{host}/mcp", "authorization_servers": [issuer.issuer]}
            await exchange.json(orjson.dumps({**document, "scopes_supported": ["notes"]}))
        elif (person := await person_of(exchange)) is not None:
            number = exchange.message["id"]
            assert isinstance(number, int)
            await exchange.json(result(number, person))

    async def opening(exchange: Exchange) -> None:
        if await person_of(exchange) is not None:
            await exchange.json(initialize_result(exchange.message["id"]), "Mcp-Session-Id: upstream-1")

    return script, opening


def scene_of(upstream: StartUpstream, adapter: StartAdapter) -> StartScene:
    """``async with scene() as it``: alice and bob before a server that needs a grant of each."""

    @contextlib.asynccontextmanager
    async def start(
        auth: dict[str, Any] | None = None,
        *,
        opens: bool = False,
        issuer: dict[str, Any] | None = None,
        **more: Any,
    ) -> AsyncIterator[Scene]:
        async with ScriptedIssuer(**(issuer or {})) as server:
            script, opening = protected(server)
            async with upstream(script, opening=None if opens else opening, hearing=accepted) as up:
                up.sessions.add("upstream-1")
                settings = {
                    "core": {
                        "public_base_url": BASE,
                        "auth": {
                            "enabled": True,
                            "tokens": [{"name": name, "token": token} for name, token in TOKENS.items()],
                        },
                        **more.pop("core", {}),
                    },
                    **more,
                }
                entry = {"upstream": {"auth": {"type": "authorization_code", **(auth or {})}}}
                async with adapter(up, server=entry, **settings) as front:
                    yield Scene(front, up, server)

    return start
