"""Signing in of a person at a terminal, in the browser (OAuth), on the client of the official SDK."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from urllib.parse import parse_qsl, urlsplit

import httpx2
import orjson
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, BaseModel, ValidationError

try:
    # It is not public. Without it a request that waits for another process's sign-in ends by its own timeout.
    from mcp.shared._request_clock import waiting_on_a_person
except ImportError:
    waiting_on_a_person = contextlib.nullcontext  # type: ignore[assignment]  # a stand-in

PATIENCE = 300.0
"""Seconds in which a person signs in."""

_HOST, _PATH = "127.0.0.1", "/callback"
_HEAD_PATIENCE = 10.0
_PAGE = (
    "HTTP/1.1 {}\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n"
    "Connection: close\r\n\r\n{}\n"
)


class _KeptSignIn(BaseModel):
    """What is kept of a sign-in; ``expires`` in Unix seconds."""

    url: str = ""
    port: int | None = None
    client: OAuthClientInformationFull | None = None
    tokens: OAuthToken | None = None
    expires: float | None = None
    metadata: OAuthMetadata | None = None


class TerminalSignIn(OAuthClientProvider):
    """The sign-in at one server: asked for when that refuses a request, renewed as long as it can be.

    ``show`` shows an address to the person, whose browser comes back to a port of this machine. ``kept`` gives what
    ``keep`` was given last, maybe by another process; empty if nothing was. ``place`` names where, for the person.
    One process at a time is within ``alone``, so that two that start together open one browser.
    """

    def __init__(
        self,
        url: str,
        show: Callable[[str], Awaitable[None]],
        kept: Callable[[], bytes],
        keep: Callable[[bytes], None],
        place: str,
        alone: Callable[[], AbstractAsyncContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._kept = _read(kept())
        self._show, self._read, self._keep, self._alone = show, kept, keep, alone
        self._place = place
        self._has_registered = False
        # An authorization server may know the client by this very address, so its port stays.
        self._port: int = self._kept.port or _free_port()
        self.has_begun = False
        self._answering = asyncio.Lock()
        self._state = ""
        self._answer: asyncio.Future[AuthorizationCodeResult]
        self._listening: asyncio.Server
        metadata = OAuthClientMetadata(
            client_name="mcp-adapter",
            redirect_uris=self._comes_back_to,
            token_endpoint_auth_method="none",  # noqa: S106 (a public client has no secret)
        )
        super().__init__(url, metadata, self, self._open, self._answered)
        self.context.token_expiry_time = self._kept.expires
        # Without it the SDK would ask the server itself to renew a token.
        self.context.oauth_metadata = self._kept.metadata

    @property
    def _comes_back_to(self) -> list[AnyUrl]:
        return [AnyUrl(f"http://{_HOST}:{self._port}{_PATH}")]

    async def token(self) -> str | None:
        """The access token of now, which may be over."""
        context = self.context
        if not self._initialized:
            await self._initialize()
        return context.current_tokens.access_token if context.current_tokens else None

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the token of now, and again with another one if that is refused."""
        for renews in (True, False):
            refused = await self.token()
            self._add_auth_header(request)
            response = yield request
            if not asks_for_sign_in(response.status_code, response.headers.get("WWW-Authenticate", "")):
                return
            shown = self._state
            async with aclosing(self._obtain(request, response, refused, renews=renews)) as steps:
                with contextlib.suppress(StopAsyncIteration):
                    asked = await anext(steps)
                    while True:
                        asked = await steps.asend((yield asked))
            if self._state != shown:  # the person is not asked twice
                break
        self._add_auth_header(request)
        yield request

    async def answer(
        self, http: httpx2.AsyncClient, status: int, challenge: str, refused: str | None, *, renews: bool
    ) -> None:
        """Obtain another token than the ``refused`` one, as the challenge of an answer asks; once for many callers.

        ``renews``: without the person, where that is possible. Raises OAuthFlowError, and what the requests raise.
        """
        request = httpx2.Request("POST", self.context.server_url)
        response = httpx2.Response(status, headers={"WWW-Authenticate": challenge}, request=request)
        async with aclosing(self._obtain(request, response, refused, renews=renews)) as steps:
            with contextlib.suppress(StopAsyncIteration):
                asked = await anext(steps)
                while True:
                    asked = await steps.asend(await http.send(asked))

    async def _obtain(
        self, request: httpx2.Request, response: httpx2.Response, refused: str | None, *, renews: bool
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the requests to authorization servers that lead to another token; see ``answer``."""
        context = self.context
        async with AsyncExitStack() as alone:
            with waiting_on_a_person():
                await alone.enter_async_context(self._answering)
                await alone.enter_async_context(self._alone())
            self._take_over(refused)
            if await self.token() != refused and context.is_token_valid():
                return
            if renews and response.status_code == 401 and context.can_refresh_token():
                context.token_expiry_time = 1.0
            self._has_registered = False
            flow = super().async_auth_flow(request)
            try:
                asked = await anext(flow)
                old = (None, f"Bearer {refused}")
                while asked is not request or request.headers.get("Authorization") in old:
                    answer = response if asked is request else (yield asked)
                    if asked is not request and await self._is_forgotten(asked, answer):
                        self._forget()
                        await flow.aclose()
                        flow = super().async_auth_flow(request)
                        asked = await anext(flow)
                    else:
                        asked = await flow.asend(answer)
            except StopAsyncIteration:
                raise OAuthFlowError("the server refuses, and says nothing of a sign-in") from None
            finally:
                await flow.aclose()

    async def _is_forgotten(self, asked: httpx2.Request, answer: httpx2.Response) -> bool:
        """Tell whether the token endpoint does not know a client that has registered some time ago."""
        if asked.method != "POST" or self.context.client_info is None or self._has_registered:
            return False
        with contextlib.suppress(ValueError):
            refusal = orjson.loads(await answer.aread())
            return isinstance(refusal, dict) and refusal.get("error") == "invalid_client"
        return False

    def _forget(self) -> None:
        """Drop the registration, and the tokens that only its client can renew."""
        self.context.client_info = None
        self.context.clear_tokens()
        self._kept = _KeptSignIn(url=self.context.server_url, port=self._port)
        self._write()

    def _take_over(self, refused: str | None) -> None:
        """Use what another process has obtained meanwhile."""
        kept = _read(self._read())
        if kept.tokens is not None and kept.tokens.access_token != refused:
            self._kept, context = kept, self.context
            self._port = kept.port or self._port
            context.client_metadata.redirect_uris = self._comes_back_to
            context.current_tokens, context.client_info = kept.tokens, kept.client
            context.token_expiry_time, context.oauth_metadata = kept.expires, kept.metadata

    async def get_tokens(self) -> OAuthToken | None:
        """What the SDK's client reads of an earlier run."""
        return self._kept.tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """What the SDK's client reads of an earlier run."""
        return self._kept.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the registration; tokens of another one are of no use."""
        self._has_registered = True
        self._kept = _KeptSignIn(port=self._port, client=client_info)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep what was granted."""
        context = self.context
        news = {"tokens": tokens, "expires": context.token_expiry_time, "metadata": context.oauth_metadata}
        self._kept = self._kept.model_copy(update={"url": context.server_url, **news})
        self._write()

    def _write(self) -> None:
        self._keep(self._kept.model_dump_json(exclude_none=True).encode())

    async def _open(self, url: str) -> None:
        self.has_begun = True
        self._state = dict(parse_qsl(urlsplit(url).query)).get("state", "")
        self._answer = asyncio.get_running_loop().create_future()
        try:
            self._listening = await asyncio.start_server(self._visited, _HOST, self._port)
        except OSError:
            raise OAuthFlowError(
                f"port {self._port} of this machine, to which the browser comes back, is taken"
            ) from None
        await self._show(url)

    async def _answered(self) -> AuthorizationCodeResult:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._answer
        except TimeoutError:
            known = f": if the browser says that the client is unknown, remove {self._place} and start again"
            advice = "" if self._has_registered else known
            raise OAuthFlowError(f"nobody has signed in within {PATIENCE:g} s{advice}") from None
        finally:
            self._listening.close()

    async def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a browser, and take note of what it brings if it comes from this sign-in."""
        with contextlib.suppress(OSError, TimeoutError, ValueError, EOFError):
            async with asyncio.timeout(_HEAD_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(self._page(head.split(b" ")[1].decode("ascii")).encode())
            await writer.drain()
        writer.close()

    def _page(self, target: str) -> str:
        asked = urlsplit(target)
        found = dict(parse_qsl(asked.query, max_num_fields=20))
        if asked.path != _PATH or not hmac.compare_digest(
            found.get("state", "").encode(), self._state.encode()
        ):
            return _PAGE.format("404 Not Found", "Nothing is here.")
        if not self._answer.done():
            self._take(found)
        return _PAGE.format("200 OK", "You can close this page and go back to the terminal.")

    def _take(self, found: Mapping[str, str]) -> None:
        if "code" in found:
            code, state, iss = found["code"], found["state"], found.get("iss")
            self._answer.set_result(AuthorizationCodeResult(code=code, state=state, iss=iss))
        else:
            why = found.get("error_description") or found.get("error")
            self._answer.set_exception(OAuthFlowError(f"the authorization server refuses: {why}"))


def asks_for_sign_in(status: int, challenge: str) -> bool:
    """Tell whether an answer asks for a token, or for one that may do more."""
    return status == 401 or (status == 403 and "insufficient_scope" in challenge)


def _read(kept: bytes) -> _KeptSignIn:
    try:
        return _KeptSignIn.model_validate_json(kept or b"{}")
    except ValidationError:  # a file of somebody else
        return _KeptSignIn()


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as listening:
        return int(listening.getsockname()[1])
