"""An authorization server on a real socket that keeps count of everything, and people who consent at it."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import orjson

from adapter.rules.access.grants import challenge_of
from tests.edge.raw import Exchange, Head, RawUpstream, Script
from tests.oauth.token_serving import nobody
from tests.waiting import until


@dataclass
class Consented:
    """A code that was given out: for whom, and to which request."""

    person: str
    request: dict[str, str]


@dataclass
class ScriptedIssuer(RawUpstream):
    """``metadata`` replaces members of its document; None takes one away. ``requests`` are those to the token endpoint.

    Refresh tokens are used once; one that comes again ends its whole family, as RFC 9700 demands. ``held``: token
    answers wait for it. ``life`` is in seconds. ``person`` is who comes to its page with a browser.
    """

    script: Script = nobody
    metadata: dict[str, Any] = field(default_factory=dict)
    requests: list[dict[str, str]] = field(default_factory=list)
    registered: list[dict[str, Any]] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    held: asyncio.Event | None = None
    life: int = 3600
    person: str = "alice"
    host: str = "127.0.0.1"
    reuses: int = 0
    tokens: dict[str, str] = field(default_factory=dict)
    """People by their access tokens that are good."""
    _codes: dict[str, Consented] = field(default_factory=dict)
    _refresh: dict[str, str] = field(default_factory=dict)
    _spent: dict[str, str] = field(default_factory=dict)

    @property
    def issuer(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def reached(self, number: int) -> None:
        """Wait for that many requests to the token endpoint. Raises TimeoutError after five seconds."""
        await until(lambda: len(self.requests) >= number)

    def document(self) -> dict[str, Any]:
        """Its metadata (RFC 8414)."""
        members = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }
        return {key: value for key, value in members.items() if value is not None}

    # --- people -----------------------------------------------------------------------------------------------

    def consent(self, url: str, person: str, **changes: str) -> str:
        """The redirect after ``person`` has signed in at ``url`` and consented."""
        request = dict(parse_qsl(urlsplit(url).query))
        code = secrets.token_urlsafe(8)
        self._codes[code] = Consented(person, request)
        return self._back(request, {"code": code, **changes})

    def refuse(self, url: str) -> str:
        """The redirect after the person has refused."""
        return self._back(dict(parse_qsl(urlsplit(url).query)), {"error": "access_denied"})

    def _back(self, request: dict[str, str], answer: dict[str, str]) -> str:
        given = {"state": request["state"], "iss": self.issuer, **answer}
        return f"{request['redirect_uri']}?{urlencode({key: value for key, value in given.items() if value})}"

    def expire(self, token: str) -> None:
        """Have an access token be worth nothing any more."""
        del self.tokens[token]

    def end_refresh(self) -> None:
        """Have no refresh token be good any more."""
        self._refresh.clear()

    # --- endpoints --------------------------------------------------------------------------------------------

    async def _answer(self, exchange: Exchange) -> None:
        status, answer = await self._reply(exchange.head, exchange.body)
        moved = [f"Location: {answer}"] if status == 302 else []
        await exchange.answer(status, orjson.dumps(answer), "Content-Type: application/json", *moved)

    async def _reply(self, head: Head, body: bytes) -> tuple[int, Any]:
        path = head.first.split()[1]
        self.fetched.append(path)
        if path == "/.well-known/oauth-authorization-server":
            return 200, self.document()
        if path.startswith("/authorize?"):
            # Whoever comes is ``person``, has signed in, and agrees.
            return 302, self.consent(path, self.person)
        if path == "/register":
            self.registered.append(orjson.loads(body))
            return 201, {**self.registered[-1], "client_id": f"registered-{len(self.registered)}"}
        form = dict(parse_qsl(body.decode()))
        if path == "/revoke":
            self.revoked.append(form["token"])
            return 200, {}
        if path == "/token":
            self.requests.append(form)
            if self.held is not None:
                await self.held.wait()
            return self._issued(form)
        return 404, {}

    def _issued(self, form: dict[str, str]) -> tuple[int, Any]:
        if form["grant_type"] == "refresh_token":
            return self._rotated(form["refresh_token"])
        consented = self._codes.pop(form["code"], None)
        if consented is None or consented.request["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        if challenge_of(form["code_verifier"]) != consented.request["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        return self._given(consented.person)

    def _rotated(self, token: str) -> tuple[int, Any]:
        person = self._refresh.pop(token, None)
        if person is None:
            if token in self._spent:
                self.reuses += 1
                self._refresh = {
                    each: who for each, who in self._refresh.items() if who != self._spent[token]
                }
            return 400, {"error": "invalid_grant"}
        self._spent[token] = person
        return self._given(person)

    def _given(self, person: str) -> tuple[int, Any]:
        access, refresh = f"access-{secrets.token_hex(4)}", f"refresh-{secrets.token_hex(4)}"
        self.tokens[access], self._refresh[refresh] = person, person
        return 200, {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": self.life,
            "refresh_token": refresh,
            "scope": "notes",
        }
