"""Rounds of a call: what a modern server wants to know as requests to a legacy client, and the client's answers.

Source of the rules: MCP 2026-07-28, "Multi Round-Trip Requests", and MCP 2025-11-25, "Elicitation".
"""

from __future__ import annotations

from typing import NamedTuple

from adapter.errors import BadJson, UpstreamBroken
from adapter.wire.envelope import dump, parse
from adapter.wire.scan import members
from adapter.wire.spans import Drop, Edit, Insert, edit, find

ELICIT = "elicitation/create"
METHODS = frozenset((ELICIT, "sampling/createMessage", "roots/list"))
MODES_SINCE = "2025-11-25"
"""The version that has modes of elicitation. Clients of earlier ones know forms, without the member that says so."""

MOST_QUESTIONS = 64
"""Questions of one round."""

LARGEST = 1 << 20
"""Bytes of a result that asks for input, which is read whole."""

DECLINED = b'{"action":"decline"}'


class Question(NamedTuple):
    """One request to a client by the ``key`` that the server gave it. ``params`` as JSON, None without any."""

    key: str
    method: str
    params: bytes | None


class InputRound(NamedTuple):
    """The questions of one round, None where the server has none, and its state as JSON."""

    questions: list[Question] | None
    state: bytes | None


def input_round(response: bytes) -> InputRound | None:
    """The round that a response asks for; None for any other response. Raises UpstreamBroken for one that asks for
    what no client has, or for too much.
    """
    if b"input_required" not in response and b"\\" not in response:
        return None
    kind = find(response, ("result", "resultType"))
    if kind is None or parse(response[slice(*kind)]) != "input_required":
        return None
    if len(response) > LARGEST:
        raise UpstreamBroken(f"The upstream server asked for input in more than {LARGEST} bytes.")
    state = find(response, ("result", "requestState"))
    asked = find(response, ("result", "inputRequests"))
    if state is None and asked is None:
        raise UpstreamBroken("The upstream server asked for input without a question or a state.")
    questions = None if asked is None else _questions(response[slice(*asked)])
    return InputRound(questions, None if state is None else response[slice(*state)])


def _questions(asked: bytes) -> list[Question]:
    found: dict[str, Question] = {}
    if not asked.startswith(b"{"):
        raise UpstreamBroken("The upstream server's inputRequests are no object.")
    for member in members(asked):
        text = asked[member.value_start : member.value_end]
        request = parse(text)
        method = request.get("method") if isinstance(request, dict) else None
        if method not in METHODS:
            raise UpstreamBroken("The upstream server asked for input that MCP has no request for.")
        params = find(text, ("params",)) if isinstance(request.get("params"), dict) else None
        found[member.key] = Question(member.key, method, None if params is None else text[slice(*params)])
        if len(found) > MOST_QUESTIONS:
            raise UpstreamBroken(f"The upstream server asked more than {MOST_QUESTIONS} questions at once.")
    return [*found.values()]


def request_of(question: Question, number: str, version: str) -> bytes:
    """The question as a request to a client of that version."""
    params = question.params
    if question.method == ELICIT and params is not None:
        edits: list[Edit] = []
        mode = find(params, ("mode",))
        if mode is not None and parse(params[slice(*mode)]) == "url":
            # Gone since 2026-07-28; a client of 2025-11-25 needs one.
            edits.append(Insert(("elicitationId",), dump(number)))
        elif version < MODES_SINCE:
            edits.append(Drop(("mode",)))
        params = edit(params, edits) if edits else params
    members_ = b"" if params is None else b',"params":' + params
    return b'{"jsonrpc":"2.0","id":%b,"method":%b%b}' % (dump(number), dump(question.method), members_)


class NotAnswered(Exception):
    """A client's error in the place of an answer; ``error`` as JSON."""

    def __init__(self, error: bytes) -> None:
        super().__init__("The client answered with an error.")
        self.error = error


def answer_to(question: Question, response: bytes) -> bytes:
    """The client's answer as the server gets it. Raises NotAnswered for an error of the client, but for a form that it
    does not show: that is declined.
    """
    result = find(response, ("result",))
    if result is not None and response.startswith(b"{", result[0]):
        return response[slice(*result)]
    if question.method == ELICIT:
        return DECLINED
    error = find(response, ("error",))
    if error is None:
        raise BadJson("The client's answer has neither a result nor an error.")
    raise NotAnswered(response[slice(*error)])
