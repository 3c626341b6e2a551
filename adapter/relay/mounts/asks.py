"""Requests to one server of a merged mount, made of what a client asked at the mount."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapter.relay.exchange import JSON, POST_FIELDS, ClientRequest, Sender, asking_plain, forwardable
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import ACCEPT
from adapter.relay.sessions.session_map import Session
from adapter.rules.access.headers import SharedFields
from adapter.rules.access.principals import NOBODY
from adapter.wire.envelope import REQUEST, Envelope, read_envelope
from adapter.wire.eras import LEGACY, encode_mirror

OWN = "mcp-file-adapter"
"""The principal of the adapter's own sessions: no caller's has a name without a digest behind it."""

_CODING = frozenset({"content-encoding"})
_NOTHING: frozenset[str] = frozenset()
_VERSION = "mcp-protocol-version"
_NAME = "mcp-name"
_METHOD = "mcp-method"
_OF_CALLS = "mcp-param-"
_FIELDS = "fields for "


def message_to(
    ask: ClientRequest, server: Server, session_id: str | None, envelope: Envelope, name: str | None = None
) -> ClientRequest:
    """``envelope`` as a POST to the server, in that session. ``name`` is the one that its header is to say, if any.

    Raises BadRequest where the server requires a header.
    """
    # What is to be told apart must come, and so be asked for, plain.
    headers = asking_plain(fields_for(ask, server), drop=_CODING if ask.encoded else _NOTHING)
    if isinstance(ask.envelope, Envelope) and envelope.method != ask.envelope.method:
        headers = _about_another(headers, envelope.method)
    if name is not None:
        headers = forwardable(headers, drop=frozenset({_NAME}))
        headers.append(("Mcp-Name", encode_mirror(name)))
    found = ClientRequest(server, "POST", sender_for(ask, server, session_id), headers, ask.query)
    found.envelope, found.body, found.sent = envelope, envelope.body, ask.sent
    return found


def _about_another(headers: list[tuple[str, str]], method: str) -> list[tuple[str, str]]:
    """The fields of a client's request for another one: servers refuse fields that differ from the body."""
    return [
        (field, method if field.lower() == _METHOD else value)
        for field, value in headers
        if field.lower() != _NAME and not field.lower().startswith(_OF_CALLS)
    ]


def beside(ask: ClientRequest, server: Server, session_id: str | None, body: bytes) -> ClientRequest:
    """A message that the adapter sends for the client of ``ask``, beside its request."""
    headers = [*_own_fields(ask, server), ("Accept", ACCEPT), ("Accept-Encoding", "identity"), JSON]
    found = ClientRequest(server, "POST", sender_for(ask, server, session_id), headers, ask.query)
    found.envelope, found.body = read_envelope(body), body
    return found


def own_ask(server: Server) -> ClientRequest:
    """A request of the adapter's own, beside which others are sent in a session that no client is in."""
    return ClientRequest(server, "POST", Sender(LEGACY, OWN), [*server.rules.static])


def stream_from(
    ask: ClientRequest, server: Server, session_id: str, last_event_id: str | None
) -> ClientRequest:
    """A GET stream of the server, taken up behind that event if there is one."""
    headers = [*_own_fields(ask, server), ("Accept", "text/event-stream"), ("Accept-Encoding", "identity")]
    if last_event_id is not None:
        headers.append(("Last-Event-ID", last_event_id))
    sender = sender_for(ask, server, session_id)._replace(last_event_id=last_event_id)
    found = ClientRequest(server, "GET", sender, headers, ask.query)
    # Many servers say 404 where they have no such stream; the session that calls use is not given up for that.
    found.renews = last_event_id is not None
    return found


def end_of(ask: ClientRequest, server: Server, session_id: str) -> ClientRequest:
    """The end of a session at the server."""
    return ClientRequest(
        server, "DELETE", sender_for(ask, server, session_id), _own_fields(ask, server), ask.query
    )


def in_own_name(ask: ClientRequest) -> ClientRequest:
    """The request as one of the adapter's own, of which no caller is known."""
    ask.sender = ask.sender._replace(principal=OWN, caller=NOBODY, party="")
    return ask


def sender_for(ask: ClientRequest, server: Server, session_id: str | None) -> Sender:
    """The client as the server's relay knows it."""
    return ask.sender._replace(session_id=session_id, party=ask.sender.party if server.apart else "")


def fields_for(ask: ClientRequest, server: Server) -> list[tuple[str, str]]:
    """The fields of the client's request that this server gets. Raises BadRequest for one that it requires."""
    rules = server.rules
    if not (rules.static or rules.passthrough or rules.required):
        # What passes to every server passes to this one.
        return ask.headers
    headers = ask.headers
    if type(headers) is SharedFields and (known := headers.derived.get(_FIELDS + server.id)) is not None:
        found: list[tuple[str, str]] = known
        return found
    caller = ask.sender.caller
    passed = rules.passed(caller.fields.items(), caller.withheld, f"The server {server.id}")
    if type(headers) is SharedFields:
        passed = headers.derived[_FIELDS + server.id] = SharedFields(passed)
    return passed


def _own_fields(ask: ClientRequest, server: Server) -> list[tuple[str, str]]:
    return forwardable(fields_for(ask, server), drop=POST_FIELDS - {_VERSION})


# --- requests that are made again and again ------------------------------------------------------------------------

Number = str | int | float | None


@dataclass(eq=False, slots=True)
class Route:
    """The way of a request that a client makes again and again: to a tool of ``name`` in the session ``member``,
    whose id is ``session_id``.

    ``table`` has said that the name is that server's; None where that is so whatever servers list. In bodies ``said``
    becomes ``renamed``. ``sender`` and ``headers`` are those that ``last_sender`` and ``last_headers`` became last:
    requests on one connection share them.
    """

    table: object | None
    server: Server
    name: str
    session_id: str
    member: Session
    said: bytes
    renamed: bytes
    last_sender: Sender | None = field(default=None, init=False)
    sender: Sender = field(init=False)
    last_headers: list[tuple[str, str]] | None = field(default=None, init=False)
    headers: list[tuple[str, str]] = field(init=False)

    def request(self, ask: ClientRequest, envelope: Envelope) -> ClientRequest | None:
        """A request on this way; None for one that has to be looked at more closely."""
        body, sender = envelope.body, ask.sender
        if (
            envelope.doubt is not None
            or envelope.kind is not REQUEST
            or ask.encoded
            or self.member.over
            or sender.version not in (None, self.member.protocol_version)
            or body.count(b'"name"') != 1
            or self.said not in body
            or b"\\u" in body
            or b'"taskId"' in body
        ):
            return None
        if sender is not self.last_sender or ask.headers is not self.last_headers:
            self.sender = sender_for(ask, self.server, self.session_id)
            self.headers = asking_plain(fields_for(ask, self.server))
            self.last_sender, self.last_headers = sender, ask.headers
        found = ClientRequest(self.server, "POST", self.sender, self.headers, ask.query)
        found.sent = ask.sent
        found.body = body = body.replace(self.said, self.renamed, 1)
        found.envelope = Envelope(REQUEST, envelope.method, envelope.id, self.name, envelope.meta, body)
        found.envelope.trace = envelope.trace
        return found
