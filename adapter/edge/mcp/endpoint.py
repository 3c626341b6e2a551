"""The MCP endpoint of every mount: requests over HTTP become ClientRequests, and what comes of them HTTP answers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import orjson
from structlog.typing import FilteringBoundLogger

from adapter.edge.http.access import MCP_METHODS, Bases, Guard
from adapter.edge.http.bodies import Body, ClientGone
from adapter.edge.http.request import Reply, Request
from adapter.edge.mcp.ingress import READ_AT_ONCE, Ingress, ask_of, check_head, id_of
from adapter.errors import (
    AdapterError,
    AdapterStopping,
    BadRequest,
    GrantRequired,
    InternalError,
    MethodNotAllowed,
    Unauthorized,
    UnsupportedMediaType,
)
from adapter.relay.exchange import ClientRequest, ClientResponse, Exchanges, Flow
from adapter.relay.server import Server
from adapter.relay.sessions.upstream_sessions import LISTEN
from adapter.rules.access import host_and_origin_check
from adapter.rules.access.headers import SharedFields
from adapter.rules.access.host_and_origin_check import NOSNIFF, is_json_type
from adapter.rules.access.principals import Identity
from adapter.settings.core import Core
from adapter.wire.envelope import Batch, Envelope, failure
from adapter.wire.eras import LEGACY, MODERN, Era

if TYPE_CHECKING:
    # Late: few servers ask people for grants, and few operators for traces.
    from adapter.edge.telemetry import ServerSpans
    from adapter.relay.call.call_gate import GrantAnswers

LONGEST_NAME = 128
"""Characters of a tool's name that a span is told: names come from clients."""


REPLACED = (
    "The settings of this server have changed, and the call took longer than core.shutdown_grace_seconds after that; "
    "it may have run. Try again."
)


@dataclass(slots=True)
class InboundRequest:
    """One request on its way in, as far as it has been understood: what a failure is rendered from.

    ``listens``: it is a GET. ``expires``: the Unix time at which the access token of its sender expires, None for any
    other sender. ``server`` is the one of its mount.
    """

    era: Era
    rpc: bool = False
    listens: bool = False
    envelope: Envelope | Batch | None = None
    outcome: str = "ok"
    expires: float | None = None
    server: Server | None = None

    @property
    def id_bytes(self) -> bytes | None:
        """The id that a failure is told under, as it was spelled; None where no request has one."""
        return id_of(self.envelope) if self.envelope else None

    @property
    def endless(self) -> bool:
        """True for a stream that has no end of its own, so that nobody waits for it."""
        return self.listens or self.method == LISTEN

    @property
    def method(self) -> str:
        return self.envelope.method if isinstance(self.envelope, Envelope) else ""


@dataclass(slots=True)
class Endpoint:
    """Serves every mount within the limits of ``core``. With ``spans`` every message is recorded. ``grants`` answers
    callers who have to authorize the adapter at an upstream first. ``merged`` are the merged mounts, by the ids of
    their servers: they stand before the relay.
    """

    relay: Exchanges
    guard: Guard
    core: Core
    log: FilteringBoundLogger
    bases: Bases
    spans: ServerSpans | None = None
    grants: GrantAnswers | None = None
    stopping: bool = field(default=False, init=False)
    """Exchanges that are cancelled from now on are cut by the adapter, and are told so."""
    ingress: Ingress = field(init=False)
    merged: Mapping[str, Exchanges] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.ingress = Ingress(self.core.max_request_bytes)

    async def serve(self, request: Request, server: Server, visit: InboundRequest) -> None:
        """Answer one request to ``server``'s mount; failures are answered too, and noted in ``visit``.

        Raises ClientGone.
        """
        request.reply.extra = (*self.guard.cors_fields(request.headers),)
        answer: ClientResponse | None = None
        spans, span = self.spans, None
        try:
            ask = await self._ask(request, server, visit)
            if spans is not None and visit.envelope is not None:
                span = spans.begin(request.headers, server.id, visit.envelope)
            answer = await self.merged.get(server.id, self.relay).handle(ask)
            fields = _fields_of(answer)
            if isinstance(answer.body, bytes):
                request.reply.send(answer.status, fields, answer.body)
            elif visit.expires is not None and visit.endless:
                await self._send_until_expiry(request.reply, answer, answer.body, fields, visit)
            else:
                await send_pieces(request.reply, answer, answer.body, fields)
        except GrantRequired as error:
            visit.outcome, request.failure = error.code, GrantRequired
            await self._ask_for_grant(request.reply, ask, error, visit)
        except AdapterError as error:
            visit.outcome, request.failure = error.code, type(error)
            self._fail(request.reply, error, visit)
        except ClientGone:
            visit.outcome = "client_gone"
            raise
        except asyncio.CancelledError:
            if not self.stopping and not server.retired:
                visit.outcome = "client_gone"
                raise
            visit.outcome, request.failure = AdapterStopping.code, AdapterStopping
            cut = AdapterStopping(REPLACED) if server.retired and not self.stopping else AdapterStopping()
            await self._cut(request.reply, answer, visit, cut)
        except Exception:
            visit.outcome, request.failure = "internal", InternalError
            self.log.exception("a request failed unexpectedly", server=server.id)
            self._fail(request.reply, InternalError(), visit)
        finally:
            if spans is not None and span is not None:
                spans.end(span, visit.outcome, answer, request.failure)
            if answer is not None and answer.holds:
                await answer.close()

    def _fail(self, reply: Reply, error: AdapterError, visit: InboundRequest) -> None:
        """Answer with the failure, or break off if an answer has begun, so that nobody takes it for complete."""
        if isinstance(error, MethodNotAllowed):
            # Whoever says 405 says what is served instead (RFC 9110 §15.5.6).
            reply.extra += (("Allow", MCP_METHODS),)
        if reply.status is None:
            legacy_statuses = self.core.errors.legacy_status == "http"
            send_failure(reply, error, visit, legacy_statuses=legacy_statuses)
        else:
            reply.abort()

    async def _ask_for_grant(
        self, reply: Reply, ask: ClientRequest, error: GrantRequired, visit: InboundRequest
    ) -> None:
        """Give the caller the link, in the form that its client can take."""
        try:
            if self.grants is None or reply.status is not None:
                raise error
            answer = await self.grants.answer(ask, error)
            fields = _fields_of(answer)
            if isinstance(answer.body, bytes):
                reply.send(answer.status, fields, answer.body)
                return
            try:
                await send_pieces(reply, answer, answer.body, fields)
            finally:
                await answer.close()
        except AdapterError as failed:
            self._fail(reply, failed, visit)

    async def _cut(
        self, reply: Reply, answer: ClientResponse | None, visit: InboundRequest, error: AdapterStopping
    ) -> None:
        """Tell the client of a cancelled exchange of the ``error``: in an answer, or at the end of its stream."""
        if reply.status is None or answer is None or not await _last_words(reply, answer, error):
            self._fail(reply, error, visit)

    async def _send_until_expiry(
        self,
        reply: Reply,
        answer: ClientResponse,
        pieces: AsyncGenerator[bytes, None],
        fields: list[tuple[str, str]],
        visit: InboundRequest,
    ) -> None:
        """Send an endless stream until the token of its listener expires. Its client comes back with a new one.

        Raises as ``send_pieces``.
        """
        assert visit.expires is not None
        try:
            async with asyncio.timeout(max(0.0, visit.expires - time.time())) as limit:
                await send_pieces(reply, answer, pieces, fields)
        except TimeoutError:
            if not limit.expired():
                raise
            visit.outcome = Unauthorized.code
            if not await _last_words(reply, answer, Unauthorized("The access token has expired.")):
                reply.abort()

    async def _ask(self, request: Request, server: Server, visit: InboundRequest) -> ClientRequest:
        # Host, Origin and token do not change with the session.
        headers, tokens = request.headers, self.guard.access_tokens
        admitted: tuple[Identity, bool, Server] | None = headers.shared.get(server.mount)
        if admitted is not None and admitted[2] is not server:
            # The settings have another server here, of which nothing is known yet.
            headers.forget()
            admitted = None
        if admitted is None or (admitted[0].expires and tokens and not tokens.is_current(headers)):
            admitted = *await self._admit(request, server, visit), server
            if not self.guard.reads_session_id:
                headers.shared[server.mount] = admitted
        identity, sends_json, _ = admitted
        visit.expires = identity.expires
        if request.method not in ("POST", "GET", "DELETE"):
            raise MethodNotAllowed(f"An MCP endpoint accepts {MCP_METHODS}.")
        if not visit.rpc:
            return ask_of(request, server, visit.era, identity, self.bases)
        if not sends_json:
            raise UnsupportedMediaType()
        body, encoded = await self._read(request, visit)
        assert visit.envelope is not None
        if visit.era is MODERN:
            check_head(visit.envelope, request)
        ask = ask_of(request, server, visit.era, identity, self.bases)
        ask.envelope, ask.body, ask.encoded = visit.envelope, body, encoded
        if request.body.held is not None:
            ask.sent = partial(_let_go, request.body, visit.envelope)
        return ask

    async def _admit(self, request: Request, server: Server, visit: InboundRequest) -> tuple[Identity, bool]:
        """Check the head. Returns who sends it, and True if a body is JSON."""
        self.guard.check_mount(request.headers)
        identity = await self._authenticate(request, server, visit)
        return identity, is_json_type(request.headers.get("Content-Type"))

    async def _authenticate(self, request: Request, server: Server, visit: InboundRequest) -> Identity:
        try:
            if self.guard.access_tokens is not None:
                await self.guard.verify(request.headers)
            return self.guard.identify(request.headers, server.id)
        except AdapterError:
            # A stranger's body is not waited for; a short one that is here already lets the refusal carry its id.
            if visit.rpc and request.body.complete and request.body.size <= READ_AT_ONCE:
                with contextlib.suppress(AdapterError):
                    await self._read(request, visit)
            raise

    async def _read(self, request: Request, visit: InboundRequest) -> tuple[bytes, bool]:
        """The body as sent and whether it is compressed; what it says goes into ``visit``."""
        body = request.body
        sent = self.ingress.take_body(body) if body.complete else await self.ingress.read_body(request)
        text, encoded = sent, False
        if "content-encoding" in request.headers.lower:
            text, encoded = self.ingress.plain(sent, request)
        if len(text) <= READ_AT_ONCE:
            visit.envelope, visit.era = self.ingress.read_message(text, visit.era)
        else:
            visit.envelope, visit.era = await self.ingress.read_dense(text, visit.era)
        return sent, encoded


def _let_go(body: Body, message: Envelope | Batch) -> None:
    """Give the memory of a message back that has been sent, also of one that another was sent for."""
    message.shrink()
    body.release()


# --- answers ----------------------------------------------------------------------------------------------------

_JSON = ("Content-Type", "application/json")


def send_failure(
    reply: Reply, error: AdapterError, visit: InboundRequest, *, legacy_statuses: bool = False
) -> None:
    """A failed JSON-RPC request is answered as JSON-RPC, everything else as ``{"detail": …}``.

    ``legacy_statuses`` gives legacy requests the HTTP statuses of the modern era (``core.errors.legacy_status``).
    """
    status, id_bytes = error.http, visit.id_bytes
    if id_bytes is not None and visit.era is LEGACY and not legacy_statuses:
        status = error.legacy_http or status
    fields = [_JSON, NOSNIFF]
    if error.retry_after is not None and status in (429, 503):
        fields.append(("Retry-After", str(math.ceil(error.retry_after))))
    if status == Unauthorized.http or isinstance(error, Unauthorized):
        challenge = error.challenge if isinstance(error, Unauthorized) else Unauthorized.challenge
        fields.append(("WWW-Authenticate", challenge))
    detail = {"detail": str(error)}
    unread = error.id_bytes if isinstance(error, BadRequest) else None
    body = failure(error, id_bytes or unread or b"null") if visit.rpc else orjson.dumps(detail)
    reply.send(status, fields, body)


# Most answers have one of few heads. Whoever is given one must not change it.
guarded = lru_cache(maxsize=64)(host_and_origin_check.guarded)
"""See ``host_and_origin_check.guarded``; takes a tuple."""


def _fields_of(answer: ClientResponse) -> list[tuple[str, str]]:
    headers = answer.headers
    fields: list[tuple[str, str]] | None
    if type(headers) is not SharedFields:
        fields = guarded(tuple(headers))
    elif (fields := headers.derived.get(guarded)) is None:
        fields = _guarded(headers)
    return fields


def _guarded(headers: SharedFields) -> SharedFields:
    base = headers.base
    if base is None or headers[-1][0].lower() == "content-type":
        fields = SharedFields(guarded(tuple(headers)))
    else:
        fields = (base.derived.get(guarded) or _guarded(base)).followed_by(headers[-1])
    headers.derived[guarded] = fields
    return fields


async def _last_words(reply: Reply, answer: ClientResponse, error: AdapterError) -> bool:
    """Complete a stream that has begun and is cut for that failure. Returns False if no bytes can."""
    if answer.last_words is None:
        return False
    reply.put(await answer.last_words(error))
    reply.end()
    return True


async def send_pieces(
    reply: Reply, answer: ClientResponse, pieces: AsyncGenerator[bytes, None], fields: list[tuple[str, str]]
) -> None:
    """Send a mount's answer as it comes, to its last byte. Raises ClientGone, and AdapterError where the body cannot be
    completed.
    """
    reply.begin(answer.status, fields, answer.length)
    if isinstance(pieces, Flow):
        await pieces.pour(reply)
    else:
        async for piece in pieces:
            await reply.write(piece)
    reply.end()
