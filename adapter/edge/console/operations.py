"""The routes of the console's data, described for OpenAPI; paths are below ``console.path``."""

from __future__ import annotations

from collections.abc import Mapping

from adapter.edge.console.exchanges import EVENT_STREAM
from adapter.edge.openapi import JSON_TYPE, TEXT, Operation, Says, Schema, json, ref

TAG = "console"

_NUMBER: Schema = {"type": "number"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_YES: Schema = {"type": "boolean"}
_DETAIL = ref("Detail")


def _or_null(kind: str) -> Schema:
    return {"type": [kind, "null"]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(members: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return {"type": "object", "required": list(members), "properties": {**members, **(optional or {})}}


SCHEMAS: dict[str, Schema] = {
    "Viewer": _object(
        {
            "principal": TEXT,
            "operator": _YES,
            "title": TEXT,
            "allow_execute": _YES,
            "version": TEXT,
            "auth": _YES,
        }
    ),
    "ServerStatus": _object(
        {
            "id": TEXT,
            "mount": TEXT,
            "transport": TEXT,
            "era": _or_null("string"),
            "status": {"enum": ["ok", "unhealthy", "starting"]},
            "breaker": _or_null("string"),
            "latency_ms": _or_null("number"),
            "history": _list(_list(_or_null("number"))),
            "tools": _or_null("integer"),
            "drift": _COUNT,
            "remembered": _YES,
            "missing": _list(TEXT),
            "helper": _or_null("string"),
            "uploads": _YES,
        }
    ),
    "Session": _object(
        {
            "server": TEXT,
            "scope": TEXT,
            "era": TEXT,
            "principal": TEXT,
            "created": _NUMBER,
            "last_seen": _NUMBER,
            "in_flight": _COUNT,
            "own": _YES,
        }
    ),
    "HeldFile": _object(
        {
            "kind": {"enum": ["upload", "artifact"]},
            "uri": TEXT,
            "filename": TEXT,
            "size": _COUNT,
            "media_type": TEXT,
            "expires_at": _or_null("number"),
            "server": TEXT,
        }
    ),
    "HeldFiles": _object(
        {
            "scope": TEXT,
            "used": _COUNT,
            "quota": _or_null("integer"),
            "count": _COUNT,
            "own": _YES,
            "files": _list(ref("HeldFile")),
        }
    ),
    "Exchange": _object(
        {
            "at": _NUMBER,
            "server": TEXT,
            "method": TEXT,
            "tool": _or_null("string"),
            "entrance": {"enum": ["mcp", "http"]},
            "outcome": TEXT,
            "status": _or_null("integer"),
            "ms": _NUMBER,
            "stages": _list(_object({"name": TEXT, "start_ms": _NUMBER, "ms": _NUMBER, "outcome": TEXT})),
        }
    ),
    "PinnedTool": _object(
        {
            "name": TEXT,
            "pinned": _or_null("string"),
            "now": _or_null("string"),
            "changes": _list(_object({"path": TEXT, "before": {}, "after": {}})),
        },
        {"unsafe": _list(TEXT)},
    ),
    "MetDrift": _object(
        {
            "digest": TEXT,
            "since": _NUMBER,
            "by": TEXT,
            "scope": TEXT,
            "sessions": _COUNT,
            "counts": {"type": "object", "additionalProperties": _COUNT},
            "what": TEXT,
        }
    ),
    "RememberedDrift": _object(
        {
            "since": _NUMBER,
            "by": TEXT,
            "sessions": _COUNT,
            "catalogues": _list(ref("MetDrift")),
            "more": _COUNT,
        }
    ),
    "Pins": _object(
        {
            "mode": {"enum": ["off", "warn", "block"]},
            "origin": {"enum": ["nothing", "lock", "accepted", "first_seen"]},
            "digest": _or_null("string"),
            "accepted": {"type": ["number", "string", "null"]},
            "remembered": {"anyOf": [ref("RememberedDrift"), {"type": "null"}]},
            "drift": _COUNT,
            "tools": _list(ref("PinnedTool")),
            "more": _COUNT,
        }
    ),
}

_STRANGER = {401: json("A token is needed.", _DETAIL)}
_UNKNOWN = {404: json("There is no such server.", _DETAIL)}
_STORE = {503: json("The adapter's state store is unavailable.", _DETAIL)}
_NAMED = {"server": "The server's id."}

OPERATIONS = (
    Operation(
        "GET",
        "/-/me",
        "showViewer",
        TAG,
        "Returns the caller and its permissions.",
        {200: json("The viewer.", ref("Viewer")), **_STRANGER},
    ),
    Operation(
        "GET",
        "/-/servers",
        "listServers",
        TAG,
        "Returns the current and past health of the servers.",
        {200: json("The servers.", _list(ref("ServerStatus"))), **_STRANGER, **_STORE},
    ),
    Operation(
        "GET",
        "/-/sessions",
        "listSessions",
        TAG,
        "Returns open sessions: a viewer's own, for operators all.",
        {200: json("The sessions, most recently used first.", _list(ref("Session"))), **_STRANGER},
    ),
    Operation(
        "GET",
        "/-/files",
        "listFiles",
        TAG,
        "Returns a viewer's files, and for operators the amount of files of others.",
        {200: json("The files by scope.", _object({"scopes": _list(ref("HeldFiles"))})), **_STRANGER},
    ),
    Operation(
        "GET",
        "/-/exchanges",
        "listExchanges",
        TAG,
        "Returns the last exchanges, or new ones as events: a viewer's own, for operators all.",
        {
            200: Says(
                "The exchanges, newest first; or events, one when each ends.",
                {JSON_TYPE: _list(ref("Exchange")), EVENT_STREAM: None},
            ),
            **_STRANGER,
            429: json("Too many viewers are watching.", _DETAIL),
        },
    ),
    Operation(
        "GET",
        "/-/config",
        "showConfiguration",
        TAG,
        "Returns the current settings without secrets.",
        {200: json("The settings.", _object({"yaml": TEXT})), **_STRANGER},
    ),
    Operation(
        "GET",
        "/-/pins/{server}",
        "showPins",
        TAG,
        "Compares a server's tools with their baseline.",
        {200: json("The tools, changed ones first.", ref("Pins")), **_STRANGER, **_UNKNOWN, **_STORE},
        named=_NAMED,
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
            403: json("The caller is not an operator.", _DETAIL),
            **_UNKNOWN,
            409: json("The tools have changed again, or the server has a lock file.", _DETAIL),
            413: json("The body is too large.", _DETAIL),
            415: json("A web page sent a body that is not JSON.", _DETAIL),
            **_STORE,
        },
        body={JSON_TYPE: _object({"digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"}})},
        named=_NAMED,
    ),
)
"""Each to be put ``below`` the console's path."""
