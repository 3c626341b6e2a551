"""The tools of one of the adapter's servers for the tool API: its callers, and their calls through the relay."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from adapter.edge.api.tool_api import ApiResult, Tell
from adapter.edge.http.access import Guard
from adapter.edge.http.public_urls import Bases
from adapter.edge.http.request import Request
from adapter.errors import AdapterError, BadRequest, CatalogueDrifted, Unauthorized, UpstreamBroken
from adapter.pipeline.context import AuthRequest
from adapter.pipeline.failures import ERROR_KEY
from adapter.relay.http_api.sessions import HttpSessions, ToolRefused, Who
from adapter.rules.access.principals import ANONYMOUS
from adapter.rules.results.outcomes import text_block

TAB_FIELD = "X-Adapter-Session"

_TAB = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Callers:
    """Reads who asks out of a request. ``credentials`` are the fields (lower case) that may carry the adapter's own.

    Requests on one connection share a head as long as it stays the same, so who asks is found out once for it.
    """

    def __init__(self, guard: Guard, bases: Bases, credentials: frozenset[str]) -> None:
        self._guard = guard
        self._bases = bases
        self._credentials = credentials | {"authorization"}

    def authenticate(self, request: Request) -> None:
        """Raises Unauthorized."""
        self._guard.principal(request.headers)

    def of(self, request: Request) -> Who:
        """The caller; a stranger has no tab, for all strangers share one session. Raises BadRequest."""
        who: Who | None = request.headers.derived.get(self)
        if who is None:
            who = request.headers.derived[self] = self._who(request)
        return who

    def _who(self, request: Request) -> Who:
        headers = request.headers
        tab = headers.get(TAB_FIELD)
        if tab is not None and _TAB.fullmatch(tab) is None:
            raise BadRequest(f"{TAB_FIELD} is up to 64 letters, digits, - and _.")
        try:
            principal, withhold = self._guard.principal(headers)
        except Unauthorized:
            # What it sent may be meant for the adapter alone, so none of it may reach a server.
            principal, withhold, tab = ANONYMOUS, self._credentials, None
        return Who(principal, tab, headers, self._bases.of(request), withhold)


class ServerTools:
    """A Provider: what callers see and run is what MCP's clients would, in a session of each one's own."""

    def __init__(self, server: str, sessions: HttpSessions, callers: Callers) -> None:
        self._server = server
        self._sessions = sessions
        self._callers = callers

    def __repr__(self) -> str:
        return f"<ServerTools of {self._server!r}>"

    @property
    def name(self) -> str:
        """See Provider."""
        return self._server

    @property
    def reads(self) -> bool:
        """See Provider."""
        return True

    def principal(self, request: Request) -> str:
        """See Provider. Raises BadRequest."""
        return self._callers.of(request).principal

    def view(self, request: Request, name: str) -> AuthRequest:
        """The part of a call that a hook sees."""
        return AuthRequest.of(self._server, name, self._callers.of(request).caller)

    async def tools(self, request: Request) -> Sequence[Any]:
        """See Provider. Raises AdapterError."""
        try:
            return await self._sessions.tools(self._callers.of(request))
        except ToolRefused as refused:
            raise _not_listed(refused) from refused

    async def tool(self, name: str, request: Request) -> Any | None:
        """See Provider. Raises AdapterError."""
        try:
            return await self._sessions.tool(self._callers.of(request), name)
        except ToolRefused as refused:
            raise _not_listed(refused) from refused

    async def call(
        self, name: str, arguments: dict[str, Any], request: Request, tell: Tell | None
    ) -> ApiResult:
        """See Provider; a JSON-RPC error is a failed result. Raises AdapterError, and what ``tell`` raises."""
        try:
            return ApiResult(await self._sessions.call(self._callers.of(request), name, arguments, tell))
        except ToolRefused as refused:
            meta = {ERROR_KEY: refused.data} if isinstance(refused.data, Mapping) else {}
            return ApiResult({"content": [text_block(str(refused))], "isError": True, "_meta": meta})


def _not_listed(refused: ToolRefused) -> AdapterError:
    """Why there is no list: it is kept back, for it is not the one that its caller first saw, or there is none."""
    if refused.code == CatalogueDrifted.rpc:
        return CatalogueDrifted(str(refused))
    return UpstreamBroken(f"The upstream server does not list its tools: {refused}")
