"""Requests to one server of a merged mount, made of what a client asked at the mount."""

from __future__ import annotations

from adapter.errors import BadRequest
from adapter.relay.exchange import POST_FIELDS, ClientRequest, Sender, asking_plain, forwardable
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import ACCEPT
from adapter.rules.access.headers import SharedFields, missing, to_upstream
from adapter.rules.access.principals import Caller
from adapter.wire.envelope import Envelope
from adapter.wire.eras import LEGACY, encode_mirror

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


def beside(ask: ClientRequest, server: Server, session_id: str | None, body: Envelope) -> ClientRequest:
    """A message that the adapter sends for the client of ``ask``, beside its request."""
    headers = _own_fields(ask, server)
    headers += [("Accept", ACCEPT), ("Accept-Encoding", "identity"), ("Content-Type", "application/json")]
    found = ClientRequest(server, "POST", sender_for(ask, server, session_id), headers, ask.query)
    found.envelope, found.body = body, body.body
    return found


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


def own_message(server: Server, principal: str, session_id: str | None, body: Envelope) -> ClientRequest:
    """A message of the adapter's own, in a session that no client is in."""
    sender = Sender(LEGACY, principal, session_id, caller=Caller(principal))
    headers = [*server.rules.static, ("Accept", ACCEPT), ("Accept-Encoding", "identity")]
    headers.append(("Content-Type", "application/json"))
    found = ClientRequest(server, "POST", sender, headers)
    found.envelope, found.body = body, body.body
    return found


def own_end(server: Server, principal: str, session_id: str) -> ClientRequest:
    """The end of a session of the adapter's own."""
    sender = Sender(LEGACY, principal, session_id, caller=Caller(principal))
    return ClientRequest(server, "DELETE", sender, list(server.rules.static))


def sender_for(ask: ClientRequest, server: Server, session_id: str | None) -> Sender:
    """The client as the server's relay knows it."""
    sender = ask.sender
    party = sender.party if server.apart else ""
    return Sender(
        sender.era,
        sender.principal,
        session_id,
        sender.version,
        sender.last_event_id,
        sender.caller,
        sender.base,
        party,
    )


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
    fields, caller = list(ask.sender.caller.fields.items()), ask.sender.caller
    absent = missing(rules.required, fields)
    if absent is not None:
        raise BadRequest(f"The server {server.id} requires the header {absent} with every request.")
    passed = to_upstream(fields, passthrough=rules.passthrough, static=rules.static, withhold=caller.withheld)
    if type(headers) is SharedFields:
        passed = headers.derived[_FIELDS + server.id] = SharedFields(passed)
    return passed


def with_version(ask: ClientRequest, version: str) -> None:
    """Have a request name the version that its server has agreed to."""
    ask.sender = ask.sender._replace(version=version)
    ask.headers = [
        *forwardable(ask.headers, drop=frozenset({_VERSION})),
        ("MCP-Protocol-Version", version),
    ]


def _own_fields(ask: ClientRequest, server: Server) -> list[tuple[str, str]]:
    return forwardable(fields_for(ask, server), drop=POST_FIELDS - {_VERSION})
