"""Requests for sessions that live in another replica: sent there once, and answered from there as they would be here.

The first replica has authenticated the caller and walked all stages; what is forwarded is the request to the upstream.
The other gives it to its own upstream and to nothing else, so it cannot be forwarded again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import orjson

from adapter.errors import (
    AdapterError,
    SessionUnknown,
    UpstreamBroken,
    UpstreamUnanswered,
    UpstreamUnreachable,
)
from adapter.relay.background import BackgroundTasks, nothing
from adapter.relay.exchange import JSON
from adapter.relay.replicas.registry import Replicas
from adapter.rules.access.principals import ENTRANCES, SESSION_ID, Caller
from adapter.rules.access.replicas import ReplicaRecord
from adapter.upstream.port import (
    Purpose,
    RewrittenReply,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    WholeReply,
    always,
    header,
    never,
    silent,
)
from adapter.wire.envelope import failure
from adapter.wire.forwarding import (
    MARK,
    METHOD,
    PATH,
    SEAL,
    Seal,
    decode_failure,
    digest_of,
    disguised,
    kind_of,
)

LEFT = "replica sessions left"
"""The topic under which replicas announce sessions that live on elsewhere."""

ATTEMPTS = 2
"""A request that was refused unread is sealed once more: the challenge may have expired, or the replica restarted."""

LATER = 5.0
"""Seconds that the answer of another replica gets beside those of its upstream: it tells of the silence itself."""

LONGEST_FAILURE = 1 << 16

LONG = 1 << 18
"""Bytes of which a digest takes longer than half a millisecond."""

_OF_THE_HOP = frozenset(
    {"date", "server", "connection", "keep-alive", "content-length", "transfer-encoding", MARK}
)
_ENDED = "The replica of the adapter that had this session ended before it answered; the call may have run."
_REFUSED = "The replica of the adapter that has this session cannot take the call; it may have run."


T = TypeVar("T")


async def beside(work: Callable[[bytes], T], content: bytes) -> T:
    """The outcome of reading all of some content; of a long one it is found in a thread."""
    return work(content) if len(content) <= LONG else await asyncio.to_thread(work, content)


def encode_head(server: str, request: UpstreamRequest, read_timeout: float | None, key: bytes) -> bytes:
    """All of a request to the upstream of a server but its body, as JSON in ASCII: header text may hold surrogates,
    which UTF-8 cannot. The adapter's own token and the id of a session are there in disguise.
    """
    caller = request.caller
    fields = caller.lower_fields()
    # Results may be kept for callers with equal fields, so a secret must differ from others without being told.
    for name in (SESSION_ID, *caller.withheld):
        if name in fields:
            fields[name] = disguised(key, fields[name])
    head = {
        "server": server,
        "method": request.method,
        "headers": list(request.headers),
        "query": request.query,
        "purpose": request.purpose.value,
        "repeatable": request.repeatable(),
        "read_timeout": read_timeout,
        "caller": {
            "principal": caller.principal,
            "entrance": caller.entrance,
            "fields": fields,
            "withheld": sorted(caller.withheld),
            "scopes": sorted(caller.scopes),
            "claims": dict(caller.claims),
        },
    }
    return json.dumps(head, separators=(",", ":")).encode()


def decode_head(data: bytes, body: bytes) -> tuple[str, UpstreamRequest, float | None]:
    """The server, the request with that body, and the time limit that ``encode_head`` wrote. Raises ValueError where
    another version has other members or words.

    It is sealed, so that nobody but a replica wrote it: nothing more is checked.
    """
    try:
        head = json.loads(data)
        of_caller = head.pop("caller")
        who = Caller(
            of_caller.pop("principal"),
            of_caller.pop("entrance"),
            of_caller.pop("fields"),
            frozenset(of_caller.pop("withheld")),
            frozenset(of_caller.pop("scopes")),
            **of_caller,
        )
        request = UpstreamRequest(
            head.pop("method"),
            [(name, value) for name, value in head.pop("headers")],
            body,
            who,
            head.pop("query"),
            always if head.pop("repeatable") else never,
            Purpose(head.pop("purpose")),
        )
        found = head.pop("server"), request, head.pop("read_timeout")
    except (TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ValueError("not a forwarded request") from error
    if head or who.entrance not in ENTRANCES:
        raise ValueError("a request of another version")
    return found


class _Unreached(Exception):
    """The owner itself cannot be reached, whatever its upstream would say."""


@dataclass(eq=False)
class ReplicaForwarder:
    """Sends requests to the replicas that own their sessions. ``connect`` gives the upstream at a URL."""

    replicas: Replicas
    connect: Callable[[str], Upstream]
    background: BackgroundTasks
    on_end: Callable[[str, str], None] = field(default=nothing, init=False)
    """Is told of the server of a request that was forwarded, and of the result."""
    _peers: dict[str, tuple[str, Upstream]] = field(default_factory=dict, init=False)
    _failing: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.replicas.on_gone.append(self._gone)

    def __repr__(self) -> str:
        return f"<ReplicaForwarder to {len(self._peers)} replicas>"

    async def send(
        self,
        owner: str,
        server: str,
        request: UpstreamRequest,
        read_timeout: float | None,
        *,
        moves: bool = True,
    ) -> UpstreamReply:
        """See Upstream. The answer is 404 where the owner has gone, so that the session is opened anew.

        ``moves``: it then lives elsewhere, and is to end where it was.

        A request that may have run there is never answered so: raises UpstreamUnanswered, or what the owner's upstream
        raised. Raises StoreUnavailable where it is not known who the owner is.
        """
        record = await self.replicas.find(owner)
        for _ in range(ATTEMPTS):
            if record is None:
                break
            try:
                reply = await self._exchange(owner, record, server, request, read_timeout)
            except _Unreached as unreached:
                self._leave_behind(owner, server, request, str(unreached), moves=moves)
                break
            if reply is not None:
                self._failing.discard(owner)
                self.on_end(server, "ok")
                return reply
            record = await self.replicas.find(owner, afresh=True)
        else:
            self._tell_once(
                owner, "another replica refuses what is forwarded to it", setting="core.replica.address"
            )
        self.on_end(server, "lost")
        return WholeReply(404, [JSON], failure(SessionUnknown(), b"null"))

    async def close(self) -> None:
        """Drop the connections to all replicas."""
        peers, self._peers = self._peers, {}
        for _, peer in peers.values():
            await peer.close()

    # --- one exchange -----------------------------------------------------------------------------------------

    async def _exchange(
        self,
        owner: str,
        record: ReplicaRecord,
        server: str,
        request: UpstreamRequest,
        read_timeout: float | None,
    ) -> UpstreamReply | None:
        """The answer of the owner, None where it did not take the request. Raises _Unreached, and as ``send``."""
        sealed, nonce = await self._sealed(owner, record, server, request, read_timeout)
        within = None if read_timeout is None else read_timeout + LATER
        try:
            reply = await self._peer(owner, record.address).send(sealed, within)
        except UpstreamUnreachable as error:
            raise _Unreached(str(error)) from None
        except (UpstreamUnanswered, UpstreamBroken):
            # Also of one that went silent, to which the connections were dropped.
            raise UpstreamUnanswered(_ENDED) from None
        kind = kind_of(header(reply.headers, MARK), self.replicas.key, nonce, reply.status)
        if kind == "answer":
            # Its fields are those that its upstream gave it.
            return RewrittenReply(
                reply, [field for field in reply.headers if field[0].lower() not in _OF_THE_HOP]
            )
        if kind == "failure":
            failure_there = await _failure_of(reply)
            if read_timeout is not None and str(failure_there) == str(silent(float(read_timeout))):
                # The setting did not travel.
                failure_there = silent(read_timeout)
            raise failure_there
        reply.abort()
        if reply.status != 404:
            raise UpstreamUnanswered(_REFUSED)
        return None

    async def _sealed(
        self,
        owner: str,
        record: ReplicaRecord,
        server: str,
        request: UpstreamRequest,
        read_timeout: float | None,
    ) -> tuple[UpstreamRequest, str]:
        """The request as it travels, and its nonce."""
        head = encode_head(server, request, read_timeout, self.replicas.key)
        content = head + request.body
        nonce = secrets.token_hex(12)
        seal = Seal(owner, record.challenge, nonce, len(head), len(content), await beside(digest_of, content))
        fields = [(SEAL, seal.signed(self.replicas.key)), ("Content-Type", "application/octet-stream")]
        sealed = UpstreamRequest(
            METHOD, fields, content, repeatable=request.repeatable, purpose=request.purpose
        )
        return sealed, nonce

    def _peer(self, owner: str, address: str) -> Upstream:
        known = self._peers.get(owner)
        if known is None or known[0] != address:
            self._gone(owner)
            known = self._peers[owner] = address, self.connect(address.rstrip("/") + PATH)
        return known[1]

    # --- replicas that go -------------------------------------------------------------------------------------

    def _gone(self, owner: str) -> None:
        """Drop the connections to a replica; what is under way there ends as a broken answer."""
        self._failing.discard(owner)
        known = self._peers.pop(owner, None)
        if known is not None:
            self.background.run(known[1].close())

    def _leave_behind(
        self, owner: str, server: str, request: UpstreamRequest, why: str, *, moves: bool
    ) -> None:
        """Tell a replica that may be alive all the same that a session of it goes on elsewhere."""
        self._tell_once(owner, "another replica cannot be reached", why=why)
        if not moves:
            return
        session = header(request.headers, "mcp-session-id")
        self.replicas.store.announce(LEFT, orjson.dumps([owner, server, session]))

    def _tell_once(self, owner: str, event: str, **facts: str) -> None:
        """Log what is wrong with a replica, until it takes a request again or has gone."""
        if owner not in self._failing:
            self._failing.add(owner)
            self.replicas.log.warning(event, replica=owner, **facts)


async def _failure_of(reply: UpstreamReply) -> AdapterError:
    """The failure that the owner's upstream raised. Raises UpstreamBroken where it breaks off."""
    data = b""
    try:
        while len(data) <= LONGEST_FAILURE and (chunk := await reply.read(LATER)):
            data += chunk
        return decode_failure(data)
    except ValueError:
        return UpstreamBroken(_REFUSED)
    finally:
        reply.abort()
