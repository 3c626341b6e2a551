"""The forms of a link in an answer, and the person's own answer in a message."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from adapter.errors import GrantRequired
from adapter.rules.calls.grant_answers import (
    INPUT,
    elicitations,
    input_required,
    member_of,
    own_input,
    takes_urls,
    tool_error,
)
from adapter.wire.envelope import Envelope, read_envelope

LINK = {"mode": "url", "elicitationId": "1", "url": "https://t.example/authorize/x/1", "message": "Open it"}
REQUIRED = GrantRequired("Open https://t.example/authorize/x/1", data=LINK)


def call(params: dict[str, Any]) -> Envelope:
    body = orjson.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x", **params}}
    )
    found = read_envelope(body)
    assert isinstance(found, Envelope)
    return found


@pytest.mark.parametrize(
    ("capabilities", "takes"),
    [
        ({"elicitation": {"url": {}}}, True),
        ({"elicitation": {"form": {}}}, False),
        ({"elicitation": {}}, False),
        ({"elicitation": True}, False),
        ({}, False),
        (None, False),
        ([], False),
    ],
)
def test_clients_that_show_links(capabilities: object, takes: bool) -> None:
    """URL mode must be declared; an empty elicitation means forms."""
    assert takes_urls(capabilities) is takes


def test_a_wish_for_input() -> None:
    """One elicitation in URL mode under a key of the adapter's own."""
    result = orjson.loads(input_required(b"7", REQUIRED))["result"]
    assert result["resultType"] == "input_required"
    params = {"mode": "url", "url": LINK["url"], "message": "Open it"}
    assert result["inputRequests"] == {INPUT: {"method": "elicitation/create", "params": params}}


def test_a_failed_tool() -> None:
    """The modern era says that its result is complete."""
    legacy = orjson.loads(tool_error(b"7", REQUIRED, modern=False))
    assert legacy["id"] == 7
    assert legacy["result"]["isError"]
    assert orjson.loads(tool_error(b"7", REQUIRED, modern=True))["result"]["resultType"] == "complete"
    assert elicitations(REQUIRED) == {"elicitations": [LINK]}


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ({"action": "accept"}, "accept"),
        ({"action": "decline"}, "decline"),
        ({"action": "cancel"}, "cancel"),
        ({"action": 5}, "cancel"),
        (None, "cancel"),
    ],
)
def test_the_person_s_answer(answer: object, action: str) -> None:
    """It is taken out, whatever it says; an odd one counts as none."""
    found, body = own_input(call({"inputResponses": {INPUT: answer}}))
    assert found == action
    assert b"inputResponses" not in body


def test_answers_to_others_stay() -> None:
    """Messages without the adapter's key keep their bytes."""
    given: tuple[dict[str, Any], ...]
    given = ({}, {"inputResponses": {"x": {}}}, {"inputResponses": 5}, {"text": "inputResponses"})
    for params in given:
        message = call(params)
        assert own_input(message) == (None, message.body)
    _, body = own_input(call({"inputResponses": {INPUT: {"action": "accept"}, "x": 1}}))
    assert orjson.loads(body)["params"]["inputResponses"] == {"x": 1}


def test_members_that_are_not_there() -> None:
    """A path that leads nowhere, and a message that is none."""
    assert member_of(b'{"a":{"b":1}}', ("a", "b")) == 1
    assert member_of(b'{"a":{}}', ("a", "b")) is None
    assert member_of(b"not json", ("a",)) is None
