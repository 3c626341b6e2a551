"""Requests of the adapter's own in a client's upstream session: for what a stage needs beside the call itself."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

from adapter.relay.exchange import POST_FIELDS, ClientRequest, forwardable
from adapter.relay.replies import decoded, is_encoded, media_type, read_answer, read_body
from adapter.relay.response_match import is_response
from adapter.relay.sessions.session_map import Session
from adapter.relay.sessions.upstream_sessions import ACCEPT, Resumption, UpstreamSessions
from adapter.wire.envelope import Envelope, dump, envelope_of, parse
from adapter.wire.eras import Era, encode_mirror
from adapter.wire.spans import find

_ABOUT_THE_CALL = ("progressToken", "io.modelcontextprotocol/related-task")


async def fetch(
    upstream_sessions: UpstreamSessions,
    ask: ClientRequest,
    session: Session | None,
    method: str,
    params: dict[str, Any],
) -> bytes | None:
    """Ask the upstream as the client of ``ask`` would; the JSON-RPC response, None if none can be had.

    Raises what the upstream raises.
    """
    # The client chooses its ids itself, and most count, so a long random text meets none of them.
    request_id = f"adapter-{secrets.token_hex(8)}"
    if ask.era is Era.MODERN:
        params = {**params, "_meta": _meta_of(ask)}
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    body = dump(message)
    own = replace(
        ask,
        headers=_headers(ask, method, params),
        envelope=envelope_of(message, body),
        body=body,
        encoded=False,
        renewed=None,
    )
    read_timeout, limit = ask.server.timeouts.request, ask.server.answer_limit
    reply = await upstream_sessions.send(own, session, body, read_timeout)
    if reply.status != 200:
        reply.abort()
        return None
    if media_type(reply) != "text/event-stream" or is_encoded(reply):
        response = decoded(await read_body(reply, read_timeout, limit), reply, limit)
        return response if await is_response(response, request_id) else None
    upstream_session = session.upstream_session if session else None
    resume = Resumption(ask.server, own.headers, upstream_session, ask.version, ask.query).after
    return (await read_answer(reply, request_id, read_timeout, resume, limit)).response


def _meta_of(ask: ClientRequest) -> dict[str, Any]:
    """The data on its client that a modern request carries in every message (MCP 2026-07-28, "_meta")."""
    assert isinstance(ask.envelope, Envelope)
    span = find(ask.envelope.body, ("params", "_meta"))
    meta = parse(ask.envelope.body[slice(*span)]) if span else {}
    return {key: value for key, value in meta.items() if key not in _ABOUT_THE_CALL}


def _headers(ask: ClientRequest, method: str, params: dict[str, Any]) -> list[tuple[str, str]]:
    fields = forwardable(
        ask.headers, drop=POST_FIELDS - {"mcp-protocol-version"} | {"mcp-method", "mcp-name"}
    )
    fields = [field for field in fields if not field[0].lower().startswith("mcp-param-")]
    fields += [("Accept", ACCEPT), ("Accept-Encoding", "identity"), ("Content-Type", "application/json")]
    if ask.era is Era.MODERN:
        fields.append(("Mcp-Method", method))
        name = params.get("uri", params.get("name"))
        if name is not None:
            fields.append(("Mcp-Name", encode_mirror(name)))
    return fields
