"""The front door: one dict look-up from a path to what serves it, and one line of log a call where asked for.

Files are served on branches: paths that begin with a prefix and hold names behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from adapter.edge.http.access import Guard
from adapter.edge.http.bodies import ClientGone
from adapter.edge.http.listener import Grace
from adapter.edge.http.request import Branch, LateBranches, Names, Request
from adapter.edge.mcp.endpoint import LONGEST_NAME, Endpoint, InboundRequest, guarded, send_failure
from adapter.edge.mcp.ingress import era_of_head
from adapter.errors import (
    AdapterError,
    AdapterStopping,
    ConnectionsTaken,
    InternalError,
    MethodNotAllowed,
    NotFound,
)
from adapter.relay.server import Server
from adapter.rules.text.unicode import shown
from adapter.wire.envelope import Envelope
from adapter.wire.eras import LEGACY, MODERN

if TYPE_CHECKING:
    # Late: only the console shows the last exchanges.
    from adapter.relay.http_api.recent_exchanges import Recent

Route = Callable[[Request], Awaitable[tuple[int, bytes]]]
"""What serves a path that is no mount: status and JSON. Raises AdapterError."""

CUTTING = 2.0
"""Seconds that exchanges which are cut get for their last words."""

JUST_BEGUN = 0.005
"""Seconds between two looks at requests whose exchange has not begun yet, at a stop."""

LOOK_AGAIN = 0.05
"""Seconds between two looks at the exchanges with servers that are served no more."""

MOST_LEFT = 1000
"""Paths of such servers that are remembered."""

_NOT_RPC = InboundRequest(LEGACY)

_OLD_TRANSPORT = ("/sse", "/message", "/messages")
"""The usual ends of the paths of HTTP+SSE, for whose clients the refusal says what is served instead."""


class AccessLog(Protocol):
    def write(self, record: dict[str, object]) -> None: ...


class ExchangeRecords:
    """Records each exchange: ``calls`` writes its line, and ``recent`` keeps it for people to see."""

    def __init__(self, guard: Guard, calls: AccessLog | None, recent: Recent | None) -> None:
        self._guard = guard
        self._calls = calls
        self._recent = recent

    def begin(self) -> None:
        """Begin the record of this task's exchange."""
        if self._recent is not None:
            self._recent.begin()

    def end(self, request: Request, server: str, call: InboundRequest, seconds: float) -> None:
        """Record an exchange over MCP with ``server`` (its id) that took ``seconds``."""
        message = call.envelope
        method, name = (message.method, message.name) if isinstance(message, Envelope) else ("", None)
        self.write(
            request,
            server,
            {
                "at": time.time(),
                "event": "exchange",
                "server": server,
                "http": request.method,
                "era": "modern" if call.era is MODERN else "legacy",
                "method": shown(method, LONGEST_NAME),
                "name": None if name is None else shown(name, LONGEST_NAME),
                "status": request.reply.status,
                "outcome": call.outcome,
                # round() to places goes by way of decimal digits and takes three times as long.
                "ms": int(seconds * 100_000) / 100,
            },
        )

    def write(self, request: Request, server: str, line: dict[str, object]) -> None:
        """Record the exchange of ``request``; ``line`` has the members that ``end`` writes."""
        if self._calls is not None:
            self._calls.write(line)
        if self._recent is not None:
            self._recent.end(line, self._guard.principal_of(request.headers, server))

    def close(self) -> None:
        """End the streams of all who watch."""
        if self._recent is not None:
            self._recent.close()


class Front:
    """The handler of the HTTP server. ``records`` records exchanges; None where nobody reads them."""

    def __init__(
        self,
        endpoint: Endpoint,
        mounts: Mapping[str, Server],
        routes: Mapping[str, Route],
        guard: Guard,
        log: FilteringBoundLogger,
        branches: Sequence[Branch | LateBranches] = (),
        records: ExchangeRecords | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._mounts = _by_path(mounts)
        self._left: dict[str, str] = {}
        """The ids of servers that were served here, by the paths."""
        self._routes = routes
        self._guard = guard
        self._log = log
        self._branches: tuple[Branch | LateBranches, ...] = tuple(branches)
        self._records = records
        self._busy: dict[Request, InboundRequest | None] = {}
        """The exchanges under way; those that are no mount's have no InboundRequest."""
        self._stopping = False

    def serve(self, mounts: Mapping[str, Server], branches: Sequence[Branch | LateBranches]) -> None:
        """Serve other mounts and branches from now on. Exchanges under way go on as they are."""
        before, self._mounts = self._mounts, _by_path(mounts)
        self._left |= {path: server.id for path, server in before.items()}
        for path in [*self._left.keys() & self._mounts.keys(), *[*self._left][:-MOST_LEFT]]:
            self._left.pop(path, None)
        self._branches = tuple(branches)

    async def leave(self, servers: Collection[Server], grace: float) -> None:
        """Wait until nobody uses these servers, which are served no more. After ``grace`` seconds cut what is left, and
        endless streams at once: their clients come back and find what is served now.
        """
        loop = asyncio.get_running_loop()
        for server in servers:
            server.retired = True
        left = set(map(id, servers))
        begun = [each for each, visit in self._busy.items() if visit is None or id(visit.server) in left]
        until = loop.time() + grace
        _cut(each for each in begun if (visit := self._busy[each]) is not None and visit.endless)
        while self._busy.keys() & begun and loop.time() < until:  # noqa: ASYNC110 - to tell would cost all exchanges
            await asyncio.sleep(LOOK_AGAIN)
        _cut(each for each in begun if self._busy.get(each) is not None)
        await asyncio.sleep(0)

    def only(self, branch: Branch) -> Front:
        """A handler for another listener, with nothing but this branch."""
        # An endpoint of its own: the two may stop at different times.
        return Front(replace(self._endpoint), {}, {}, self._guard, self._log, [branch])

    def __repr__(self) -> str:
        return f"<Front: {len(self._mounts)} mounts, {len(self._busy)} exchanges>"

    async def __call__(self, request: Request) -> None:
        path = request.path
        server = self._mounts.get(path) or self._mounts.get(path.rstrip("/"))
        if server is None:
            await self._other(request, path)
            return
        if request.method == "OPTIONS":
            preflight = self._guard.preflight_fields(request.headers)
            if preflight is not None:
                request.reply.send(204, guarded(tuple(preflight)))
                return
        records = self._records
        if records is not None:
            records.begin()
        began = time.monotonic()
        method = request.method
        visit = InboundRequest(
            era_of_head(request), method == "POST", method == "GET", None, "ok", None, server
        )
        self._busy[request] = visit
        try:
            await self._endpoint.serve(request, server, visit)
        except asyncio.CancelledError:
            visit.outcome = "client_gone"
            raise
        finally:
            del self._busy[request]
            if records is not None:
                records.end(request, server.id, visit, time.monotonic() - began)

    async def serve_reserved(self, request: Request) -> None:
        """Answer a request on a connection above ``core.max_connections``: health, and nothing else."""
        if request.path in self._routes:
            await self._other(request, request.path)
        else:
            self._fail(request, ConnectionsTaken(retry_after=1))

    async def _other(self, request: Request, path: str) -> None:
        try:
            branch, names = self._branch(request)
            while isinstance(branch, LateBranches):
                await self._load(branch)
                branch, names = self._branch(request)
            if branch is None:
                await self._show(request, path)
                return
            request.reply.extra = (
                *self._guard.cors_fields(request.headers, branch.exposed, any_origin=branch.open),
            )
            await self._follow(request, branch, names)
        except AdapterError as error:
            self._fail(request, error)
        except ClientGone:
            raise
        except Exception:
            self._log.exception("a request failed unexpectedly", path=path)
            self._fail(request, InternalError())

    async def _show(self, request: Request, path: str) -> None:
        route = self._routes.get(path)
        if route is None and path.rstrip("/").endswith(_OLD_TRANSPORT):
            raise NotFound(
                "Nothing is served here: mcp-file-adapter serves streamable HTTP at the address of each server, such "
                "as /mcp/SERVER, and no HTTP+SSE (2024-11-05) with its own paths for a stream and for messages."
            )
        if route is None:
            raise NotFound(self._farewell(path))
        self._guard.check_place(request.headers)
        if request.method not in ("GET", "HEAD"):
            request.reply.extra = (("Allow", "GET, HEAD"),)
            raise MethodNotAllowed()
        if self._guard.access_tokens is not None:
            # An issuer that cannot be asked makes nobody's health worse.
            with contextlib.suppress(AdapterError):
                await self._guard.verify(request.headers)
        status, body = await route(request)
        fields = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
        request.reply.send(status, fields, body)

    def _farewell(self, path: str) -> str | None:
        left = self._left.get(path.rstrip("/"))
        if left is None:
            return None
        return f"The server {left!r} is served here no more: it has left the settings, or has another path in them."

    async def _load(self, late: LateBranches) -> None:
        """Put the branches themselves in the place of the late ones."""
        loaded = await late.load()
        if late in self._branches:
            place = self._branches.index(late)
            self._branches = (*self._branches[:place], *loaded, *self._branches[place + 1 :])

    def _branch(self, request: Request) -> tuple[Branch | LateBranches | None, Names]:
        # Who calls a tool over and over asks for one path, on one connection.
        key = (request.method, request.target)
        last: _Found | None = request.headers.derived.get(self)
        if last is not None and last.key == key and last.among is self._branches:
            return last.branch
        found = self._find_branch(request)
        if not isinstance(found[0], LateBranches):
            request.headers.derived[self] = _Found(key, self._branches, found)
        return found

    def _find_branch(self, request: Request) -> tuple[Branch | LateBranches | None, Names]:
        for branch in self._branches:
            names = branch.names(request)
            if names is not None:
                return branch, names
        return None, ()

    async def _follow(self, request: Request, branch: Branch, names: Names) -> None:
        if not branch.sealed:
            check = self._guard.check_host if branch.public else self._guard.check_place
            check(request.headers)
        if branch.sealed or request.method in branch.methods:
            if self._guard.access_tokens is not None and not (branch.sealed or branch.public):
                await self._guard.verify(request.headers)
            await self._serve(request, branch, names)
            return
        allowed = ("Allow", ", ".join((*branch.methods, "OPTIONS")))
        if request.method != "OPTIONS":
            request.reply.extra += (allowed,)
            raise MethodNotAllowed()
        # A preflight's fields are all that it is answered with.
        request.reply.extra = ()
        preflight = self._guard.preflight_fields(request.headers, branch.methods, any_origin=branch.open)
        request.reply.send(204, [allowed] if preflight is None else preflight)

    async def _serve(self, request: Request, branch: Branch, names: Names) -> None:
        self._busy[request] = None
        try:
            await branch.serve(request, names)
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            raise AdapterStopping from None
        finally:
            del self._busy[request]

    def _fail(self, request: Request, error: AdapterError) -> None:
        """Answer with the failure. Where an answer has begun, complete it with its last words, or else break it off, so
        that nobody takes it for complete.
        """
        request.failure = type(error)
        if request.reply.status is None:
            send_failure(request.reply, error, _NOT_RPC)
        elif request.last_words is not None:
            request.reply.put(request.last_words(error))
            request.reply.end()
        else:
            request.reply.abort()

    async def drain(
        self, grace: Grace, close_idle: Callable[[Grace], Awaitable[set[asyncio.Task[None]]]] | None = None
    ) -> None:
        """Wait for the exchanges under way, also for those that begin meanwhile: ``close_idle`` closes connections that
        bring no more of them, and returns the tasks of the others. When the ``grace`` is over, cancel the rest and all
        endless streams, and tell their clients. Streams of the console end at once.
        """
        if self._records is not None:
            self._records.close()
        while not grace.over:
            tasks = set() if close_idle is None else await close_idle(grace)
            if ending := self._ending():
                await grace.wait(ending)
            elif tasks.issubset(_tasks(self._busy)):
                break
            else:
                # A request has arrived just now, and its exchange begins soon; health has none.
                await asyncio.sleep(JUST_BEGUN)
        self._stopping = self._endpoint.stopping = True
        cut = _tasks(self._busy)
        for task in cut:
            task.cancel()
        if cut:
            await asyncio.wait(cut, timeout=CUTTING)

    def _ending(self) -> list[asyncio.Task[None]]:
        """The tasks of the exchanges under way that come to an end by themselves."""
        return _tasks(each for each, visit in self._busy.items() if visit is None or not visit.endless)


class _Found(NamedTuple):
    """The ``branch`` of a request by its method and target, with its names, ``among`` those that were served then."""

    key: tuple[str, str]
    among: tuple[Branch | LateBranches, ...]
    branch: tuple[Branch | LateBranches | None, Names]


def _by_path(mounts: Mapping[str, Server]) -> dict[str, Server]:
    return {mount.rstrip("/"): server for mount, server in mounts.items()}


def _cut(requests: Iterable[Request]) -> None:
    for task in _tasks(requests):
        task.cancel()


def _tasks(requests: Iterable[Request]) -> list[asyncio.Task[None]]:
    """The tasks that answer these requests."""
    return [request.task for request in requests if request.task is not None]
