"""The routes of the console's data, described for OpenAPI; paths are below ``console.path``."""

from __future__ import annotations

from collections.abc import Mapping

from adapter.edge.http.answers import EVENT_STREAM
from adapter.edge.openapi import (
    COUNT,
    JSON_TYPE,
    NOTHING,
    NUMBER,
    TEXT,
    YES,
    Operation,
    Says,
    Schema,
    Takes,
    json,
    list_of,
    object_of,
    or_null,
    ref,
)

TAG = "console"

_DETAIL = ref("Detail")

SCHEMAS: dict[str, Schema] = {
    "Viewer": object_of(
        {
            "principal": TEXT,
            "operator": YES,
            "title": TEXT,
            "allow_execute": YES,
            "version": TEXT,
            "auth": YES,
        }
    ),
    "ServerStatus": object_of(
        {
            "id": TEXT,
            "mount": TEXT,
            "transport": TEXT,
            "era": or_null("string"),
            "status": {"enum": ["ok", "unhealthy", "starting"]},
            "breaker": or_null("string"),
            "latency_ms": or_null("number"),
            "history": list_of(list_of(or_null("number"))),
            "tools": or_null("integer"),
            "drift": COUNT,
            "remembered": YES,
            "missing": list_of(TEXT),
            "helper": or_null("string"),
            "uploads": YES,
        }
    ),
    "Session": object_of(
        {
            "server": TEXT,
            "scope": TEXT,
            "era": TEXT,
            "principal": TEXT,
            "created": NUMBER,
            "last_seen": NUMBER,
            "in_flight": COUNT,
            "own": YES,
        }
    ),
    "HeldFile": object_of(
        {
            "kind": {"enum": ["upload", "artifact"]},
            "uri": TEXT,
            "filename": TEXT,
            "size": COUNT,
            "media_type": TEXT,
            "expires_at": or_null("number"),
            "server": TEXT,
        }
    ),
    "HeldFiles": object_of(
        {
            "scope": TEXT,
            "used": COUNT,
            "quota": or_null("integer"),
            "count": COUNT,
            "own": YES,
            "files": list_of(ref("HeldFile")),
        }
    ),
    "Exchange": object_of(
        {
            "at": NUMBER,
            "server": TEXT,
            "method": TEXT,
            "tool": or_null("string"),
            "entrance": {"enum": ["mcp", "http"]},
            "outcome": TEXT,
            "status": or_null("integer"),
            "ms": NUMBER,
            "stages": list_of(object_of({"name": TEXT, "start_ms": NUMBER, "ms": NUMBER, "outcome": TEXT})),
        }
    ),
    "PinnedTool": object_of(
        {
            "name": TEXT,
            "pinned": or_null("string"),
            "now": or_null("string"),
            "changes": list_of(object_of({"path": TEXT, "before": {}, "after": {}})),
        },
        {"unsafe": list_of(TEXT)},
    ),
    "MetDrift": object_of(
        {
            "digest": TEXT,
            "since": NUMBER,
            "by": TEXT,
            "scope": TEXT,
            "sessions": COUNT,
            "counts": {"type": "object", "additionalProperties": COUNT},
            "what": TEXT,
        }
    ),
    "RememberedDrift": object_of(
        {
            "since": NUMBER,
            "by": TEXT,
            "sessions": COUNT,
            "catalogues": list_of(ref("MetDrift")),
            "more": COUNT,
        }
    ),
    "Pins": object_of(
        {
            "mode": {"enum": ["off", "warn", "block"]},
            "origin": {"enum": ["nothing", "lock", "accepted", "first_seen"]},
            "digest": or_null("string"),
            "accepted": {"type": ["number", "string", "null"]},
            "remembered": {"anyOf": [ref("RememberedDrift"), {"type": "null"}]},
            "drift": COUNT,
            "tools": list_of(ref("PinnedTool")),
            "more": COUNT,
        }
    ),
}

_STRANGER = {401: json("A token is needed.", _DETAIL)}
_UNKNOWN = {404: json("There is no such server.", _DETAIL)}
_STORE = {503: json("The adapter's store is away.", _DETAIL)}
_NAMED = {"server": "The server's id."}


def _shown(
    path: str,
    name: str,
    summary: str,
    answer: Says,
    failures: Mapping[int, Says] = {},
    takes: Takes = NOTHING,
) -> Operation:
    """A route that shows something to everybody with a token."""
    return Operation("GET", f"/-/{path}", name, TAG, summary, {200: answer, **_STRANGER, **failures}, takes)


OPERATIONS = (
    _shown("me", "showViewer", "Who asks, and what they may do.", json("The viewer.", ref("Viewer"))),
    _shown(
        "servers",
        "listServers",
        "How the servers are, and how they were.",
        json("The servers.", list_of(ref("ServerStatus"))),
        _STORE,
    ),
    _shown(
        "sessions",
        "listSessions",
        "The open sessions: the viewer's own, to operators all.",
        json("The sessions, those used last first.", list_of(ref("Session"))),
    ),
    _shown(
        "files",
        "listFiles",
        "The viewer's files, and to operators how much others hold.",
        json("The files by scope.", object_of({"scopes": list_of(ref("HeldFiles"))})),
    ),
    _shown(
        "exchanges",
        "listExchanges",
        "The last exchanges, or those to come as events: the viewer's own, to operators all.",
        Says(
            "The exchanges, the newest first; as events each as it ends.",
            {JSON_TYPE: list_of(ref("Exchange")), EVENT_STREAM: None},
        ),
        {429: json("As many watch already as may.", _DETAIL)},
    ),
    _shown(
        "config",
        "showConfiguration",
        "The settings that are in force, without secrets.",
        json("The settings.", object_of({"yaml": TEXT})),
    ),
    _shown(
        "pins/{server}",
        "showPins",
        "How a server's tools stand to what it is held against.",
        json("The tools, those that changed first.", ref("Pins")),
        {**_UNKNOWN, **_STORE},
        Takes(named=_NAMED),
    ),
    Operation(
        "POST",
        "/-/pins/{server}/accept",
        "acceptPins",
        TAG,
        "Has every session start from the tools of now. For operators.",
        {
            200: json("They do.", ref("Pins")),
            400: json("The body names no digest.", _DETAIL),
            **_STRANGER,
            403: json("The viewer is no operator.", _DETAIL),
            **_UNKNOWN,
            409: json("The tools are others by now, or are not an operator's to accept.", _DETAIL),
            413: json("The body is too large.", _DETAIL),
            415: json("A page sent something that is not JSON.", _DETAIL),
            **_STORE,
        },
        Takes(
            body={JSON_TYPE: object_of({"digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"}})},
            named=_NAMED,
        ),
    ),
)
"""Each to be put ``below`` the console's path."""
