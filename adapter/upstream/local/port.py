"""The port of a server behind a LocalUpstream: it gets JSON-RPC messages, and sees nothing of HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from adapter.rules.access.principals import Caller
from adapter.upstream.local.events import EventStream
from adapter.upstream.local.replies import LocalAnswer, PendingReply
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.upstream.port import Fields, UpstreamRequest
from adapter.wire.envelope import Envelope
from adapter.wire.eras import Era

ProgressToken = str | int | float


class LocalHead(NamedTuple):
    """The values that a request has beside its message. ``streams``: its answer may be an event stream.

    ``request`` is the HTTP request as it came, for a server that is reached over HTTP itself.
    """

    era: Era
    fields: Fields
    caller: Caller
    streams: bool
    request: UpstreamRequest


@dataclass(slots=True)
class LocalRequest:
    """One JSON-RPC request. ``envelope.body`` holds its bytes as they came, ``params`` the parsed member of it.

    For a server that does not read them they may be None, but for ``initialize`` and in the modern era. ``session`` is
    None in the modern era, and for the ``initialize`` that opens one.
    """

    envelope: Envelope
    params: Any
    head: LocalHead
    session: LocalSession | None = None

    @property
    def id_bytes(self) -> bytes:
        number = self.envelope.id
        return b"%d" % number if type(number) is int else self.envelope.id_bytes

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.params.get("_meta") if isinstance(self.params, dict) else None
        return meta if isinstance(meta, dict) else {}

    @property
    def progress_token(self) -> ProgressToken | None:
        """The token under which the client wants progress, None where it cannot be told any."""
        token = self.meta.get("progressToken") if self.head.streams else None
        return token if isinstance(token, str | int | float) and not isinstance(token, bool) else None


class LocalServer(Protocol):
    """A server in this process, or a bridge to one that is a process of its own."""

    @property
    def reads_params(self) -> bool:
        """Tell whether it reads the parameters of requests, so that they are parsed for it."""

    @property
    def sessions(self) -> LocalSessions:
        """The sessions that it opened: it ends one whose process has died, which answers 404 from then on."""

    def answer(self, request: LocalRequest) -> LocalAnswer | PendingReply | EventStream:
        """Answer a request at once, or give the reply that will be filled.

        An ``initialize`` is answered with the session that it opened. Raises RpcRefused and HeaderMismatch, which
        are answered under the request's id; any other AdapterError is a failure of the upstream.
        """

    async def observe(self, envelope: Envelope, session: LocalSession, head: LocalHead) -> None:
        """Take a notification or a response of a legacy client. A call that it cancels is withdrawn already.

        The client is answered when it returns, so it may wait until the server has room for the message.
        """

    async def close(self) -> None:
        """Stop what runs. The sessions have ended before."""
