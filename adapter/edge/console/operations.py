"""The routes of the console's data, described for OpenAPI; paths are below ``console.path``."""

from __future__ import annotations

from collections.abc import Mapping

from adapter.edge.http.response import EVENT_STREAM
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
        },
        {"grants": YES},
    ),
    "Condition": object_of(
        {
            "look": {"enum": ["ok", "warn", "bad"]},
            "notes": list_of(
                object_of({"kind": TEXT, "at": or_null("number"), "text": or_null("string")}),
            ),
            "last_error": {
                "anyOf": [
                    object_of({"at": NUMBER, "by": {"enum": ["check", "call"]}, "text": TEXT}),
                    {"type": "null"},
                ]
            },
        }
    ),
    "DriftInShort": object_of(
        {"since": NUMBER, "by": TEXT, "sessions": COUNT, "what": TEXT, "catalogues": COUNT}
    ),
    "Activity": object_of(
        {
            "whose": {"enum": ["all", "own"]},
            "since": NUMBER,
            "minutes": list_of(list_of(COUNT)),
            "replica": or_null("string"),
            "heard": list_of(TEXT),
            "silent": list_of(TEXT),
        }
    ),
    "Connections": object_of(
        {
            "url": TEXT,
            "token": or_null("string"),
            "signs_in": YES,
            "clients": list_of(
                object_of(
                    {
                        "id": TEXT,
                        "title": TEXT,
                        "file": TEXT,
                        "folder": {"enum": ["home", "config", "project"]},
                        "format": {"enum": ["json", "toml", "yaml"]},
                        "text": TEXT,
                        "note": TEXT,
                        "command": TEXT,
                        "placeholder": or_null("string"),
                    }
                )
            ),
        }
    ),
    "ServerStatus": object_of(
        {
            "id": TEXT,
            "mount": TEXT,
            "transport": TEXT,
            "era": or_null("string"),
            "status": {"enum": ["ok", "unhealthy", "starting"]},
            "condition": ref("Condition"),
            "checked": YES,
            "breaker": or_null("string"),
            "latency_ms": or_null("number"),
            "history": list_of(list_of(or_null("number"))),
            "tools": or_null("integer"),
            "drift": COUNT,
            "remembered": YES,
            "met": {"anyOf": [ref("DriftInShort"), {"type": "null"}]},
            "missing": list_of(TEXT),
            "helper": or_null("string"),
            "uploads": YES,
        }
    ),
    "ClientName": object_of({"name": TEXT, "version": TEXT}),
    "Session": object_of(
        {
            "server": TEXT,
            "scope": TEXT,
            "client": {"anyOf": [ref("ClientName"), {"type": "null"}]},
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
            "changed": YES,
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
        },
        {"replica": TEXT, "own": YES, "call": TEXT},
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

_STRANGER = {401: json("A token is needed.", _DETAIL), 403: json("The token has too few scopes.", _DETAIL)}
_UNKNOWN = {404: json("There is no such server.", _DETAIL)}
_STORE = {503: json("The adapter's state store is unavailable.", _DETAIL)}
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
    _shown("me", "showViewer", "Returns the caller and its permissions.", json("The viewer.", ref("Viewer"))),
    _shown(
        "servers",
        "listServers",
        "Returns the current and past health of the servers.",
        json("The servers.", list_of(ref("ServerStatus"))),
        _STORE,
    ),
    _shown(
        "sessions",
        "listSessions",
        "Returns open sessions: a viewer's own, for operators all.",
        json("The sessions, most recently used first.", list_of(ref("Session"))),
        _STORE,
    ),
    _shown(
        "files",
        "listFiles",
        "Returns a viewer's files, and for operators the amount of files of others.",
        json(
            "The files by scope.", object_of({"scopes": list_of(ref("HeldFiles")), "schemes": list_of(TEXT)})
        ),
    ),
    _shown(
        "exchanges",
        "listExchanges",
        "Returns the last exchanges, or new ones as events: a viewer's own, for operators all.",
        Says(
            "The exchanges, newest first; or events, one when each ends.",
            {JSON_TYPE: list_of(ref("Exchange")), EVENT_STREAM: None},
        ),
        {429: json("Too many viewers are watching.", _DETAIL)},
    ),
    _shown(
        "activity",
        "showActivity",
        "Returns the exchanges and failures of each minute of the last hour: a viewer's own, for operators all.",
        json("Minutes as [Unix seconds, calls of tools, other exchanges, failures].", ref("Activity")),
    ),
    _shown(
        "connect/{server}",
        "showConnections",
        "Returns a server's address and the entry that each MCP client needs for it, without any token.",
        json("The address and the entries.", ref("Connections")),
        _UNKNOWN,
        Takes(named=_NAMED),
    ),
    _shown(
        "config",
        "showConfiguration",
        "Returns the current settings without secrets.",
        json("The settings.", object_of({"yaml": TEXT})),
    ),
    _shown(
        "pins/{server}",
        "showPins",
        "Compares a server's tools with their baseline.",
        json("The tools, changed ones first.", ref("Pins")),
        {**_UNKNOWN, **_STORE},
        Takes(named=_NAMED),
    ),
    Operation(
        "POST",
        "/-/pins/{server}/accept",
        "acceptPins",
        TAG,
        "Makes the current tools the baseline of every session. For operators.",
        {
            200: json("They do.", ref("Pins")),
            400: json("The body has no digest.", _DETAIL),
            **_STRANGER,
            403: json("The caller is not an operator, or the token has too few scopes.", _DETAIL),
            **_UNKNOWN,
            409: json("The tools have changed again, or the server has a lock file.", _DETAIL),
            413: json("The body is too large.", _DETAIL),
            415: json("A web page sent a body that is not JSON.", _DETAIL),
            **_STORE,
        },
        Takes(
            body={JSON_TYPE: object_of({"digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"}})},
            named=_NAMED,
        ),
    ),
)
"""Each to be put ``below`` the console's path."""
