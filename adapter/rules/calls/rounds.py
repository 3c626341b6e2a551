"""Calls that take several rounds: which request goes on with which answer, and what is remembered between. Pure.

Source of the rules: MCP 2026-07-28, "Multi Round-Trip Requests". A server may answer a call with
``InputRequiredResult``; the client sends the call again with the same arguments and that answer's ``requestState``,
which the server may have bound to the arguments that it saw.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter.rules.access.principals import Scope
from adapter.wire.nesting import dump_odd

_FORMAT = 1
STATE = b"requestState"
"""What a message holds in its bytes that has a state, but for one that spells the word with escapes."""

STATES_KEPT = 16
"""States of one call by which it is found again: a client goes on from the last one, or repeats one of the others."""


def state_of(params: object) -> str | None:
    """The ``requestState`` in a request's params or in a result; null counts as absent."""
    state = params.get("requestState") if isinstance(params, dict) else None
    return state if isinstance(state, str) else None


def asks_for_input(message: object) -> str | None:
    """The state of a response, decoded, that asks its client for input and to call again with it."""
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(result, dict) or result.get("resultType") != "input_required":
        return None
    return state_of(result)


def round_key(scope_id: str, server: str, tool: str, arguments: object, state: str) -> str:
    """The digest of all that makes a request the next round of a call, 64 hex digits. Raises BadJson for arguments that
    are nested too deep to be written (see nesting).
    """
    digest = hashlib.sha256()
    for part in (scope_id, server, tool, state):
        text = part.encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "big") + text)
    digest.update(_sorted(arguments))
    return digest.hexdigest()


def _sorted(value: object) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return dump_odd(value, sort_keys=True)


@dataclass(slots=True)
class PendingRound:
    """A call whose client is to answer. ``due`` is when it is given up, in Unix seconds.

    ``states`` are the keys of its states, the latest last, each with the server's own state where the client was given
    another text for it. ``notes`` is what the stages have to know of the call in its next round.
    """

    id: str
    scope: Scope
    due: float
    notes: dict[str, Any]
    states: dict[str, str | None] = field(default_factory=dict)

    @property
    def latest(self) -> str | None:
        """The key of the state that its client was given last."""
        return next(reversed(self.states), None)

    def add_state(self, key: str, own: str | None) -> list[str]:
        """Be found by this key too. Returns the keys by which it is found no longer."""
        self.states.pop(key, None)
        self.states[key] = own
        gone = list(self.states)[:-STATES_KEPT]
        for each in gone:
            del self.states[each]
        return gone


def encode(pending: PendingRound) -> bytes:
    """The round as one JSON object; ``decode`` gives back an equal one."""
    return json.dumps(
        {
            "format": _FORMAT,
            "id": pending.id,
            "scope": [*pending.scope],
            "due": pending.due,
            "notes": pending.notes,
            "states": pending.states,
        }
    ).encode("ascii")


def decode(data: bytes) -> PendingRound:
    """The round out of a row's value; ValueError if this version cannot read it."""
    try:
        fields: dict[str, Any] = json.loads(data)
        if fields.pop("format") != _FORMAT:
            raise ValueError("a round of another format")
        fields["scope"] = Scope(*fields["scope"])
        return PendingRound(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a round") from error
