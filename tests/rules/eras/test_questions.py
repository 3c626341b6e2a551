"""Questions of legacy servers: who can be asked what, and what is answered in a client's name."""

from __future__ import annotations

import orjson
import pytest

from adapter.rules.eras.questions import (
    LegacyQuestion,
    answered,
    declined,
    input_required,
    links_in,
    question_in,
    way_of,
    ways,
)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (None, set()),
        ([], set()),
        ({"elicitation": {}}, {"form"}),
        ({"elicitation": {"url": {}}}, {"url"}),
        ({"elicitation": {"form": {}, "url": 3}}, {"form"}),
        ({"elicitation": True, "roots": 1, "sampling": []}, set()),
        ({"roots": {}, "sampling": {}}, {"roots", "sampling"}),
        ({"sampling": {"tools": {}}}, {"sampling", "sampling with tools"}),
    ],
)
def test_ways_in_which_a_client_can_be_asked(capabilities: object, expected: set[str]) -> None:
    """Only what a client declares, in the form that the revision gives it."""
    assert ways(capabilities) == expected


def test_ways_of_questions() -> None:
    """A question is of one way, or none that a client knows."""
    assert way_of("elicitation/create", {"mode": "url"}) == "url"
    assert way_of("elicitation/create", None) == "form" == way_of("elicitation/create", {"mode": 3})
    assert way_of("sampling/createMessage", {"toolChoice": {}}) == "sampling with tools"
    assert way_of("roots/list", {}) == "roots" and way_of("ping", {}) == way_of("tasks/get", {}) == ""


def test_id_of_a_question_keeps_its_spelling() -> None:
    """It is the server's, and may be any number."""
    question = question_in(b'{"jsonrpc":"2.0","id":1e2,"method":"roots/list"}', "roots/list")
    assert answered(question, b"{}") == b'{"jsonrpc":"2.0","id":1e2,"result":{}}'
    assert b'"id":1e2' in declined(question)


def test_client_is_asked_all_at_once() -> None:
    """The questions keep their bytes, and one without params has none."""
    asked = {
        "a": LegacyQuestion(b"1", "roots/list", b""),
        "b": LegacyQuestion(b"2", "elicitation/create", b'{"x": 1.0}'),
    }
    body = input_required(b"7", asked, "state", b'{"name":"s"}')
    assert b'"params":{"x": 1.0}' in body
    found = orjson.loads(body)
    assert found["id"] == 7 and found["result"]["requestState"] == "state"
    assert found["result"]["inputRequests"]["a"] == {"method": "roots/list"}


@pytest.mark.parametrize(
    "error",
    [
        None,
        {"code": -32042},
        {"code": -32042, "data": {"elicitations": []}},
        {"code": -32042, "data": {"elicitations": [{"url": 3}]}},
        {"code": -32042, "data": {"elicitations": [{"url": "x"}] * 65}},
        {"code": -1, "data": {"elicitations": [{"url": "x"}]}},
    ],
)
def test_other_errors_ask_for_no_link(error: object) -> None:
    """Only an error that names links is a question."""
    assert links_in(error) == {}
