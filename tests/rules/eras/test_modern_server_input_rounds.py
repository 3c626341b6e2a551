"""What modern servers want to know, as questions to legacy clients, and their answers."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import BadJson, UpstreamBroken
from adapter.rules.eras.modern_server import (
    DECLINED,
    LARGEST,
    MOST_QUESTIONS,
    NotAnswered,
    Question,
    answer_to,
    input_round,
    request_of,
)

_METHODS = st.sampled_from(["elicitation/create", "sampling/createMessage", "roots/list"])
_PARAMS = st.none() | st.dictionaries(
    st.text(max_size=5) | st.sampled_from(["mode", "method", "params"]),
    st.none() | st.integers(-9, 9) | st.sampled_from(["form", "url"]),
    max_size=4,
)


def response(result: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": result})


def asking(**content: Any) -> bytes:
    return response({"resultType": "input_required", **content})


@given(
    st.dictionaries(st.text(max_size=9), st.tuples(_METHODS, _PARAMS), max_size=5),
    st.none() | st.integers(-9, 9) | st.text(),
)
def test_round_is_read_as_it_was_asked(
    asked: dict[str, tuple[str, dict[str, Any] | None]], state: object
) -> None:
    """Each question by its key, in its order, and the state as it is."""
    requests = {
        key: {"method": method} if params is None else {"method": method, "params": params}
        for key, (method, params) in asked.items()
    }
    found = input_round(asking(inputRequests=requests, requestState=state))
    assert found is not None and found.questions is not None and found.state is not None
    assert orjson.loads(found.state) == state
    read = [(each.key, each.method, each.params and orjson.loads(each.params)) for each in found.questions]
    assert [(key, method, params or {}) for key, method, params in read] == [
        (key, method, params or {}) for key, (method, params) in asked.items()
    ]


@given(
    st.dictionaries(st.text(max_size=9), st.integers(-9, 9) | st.sampled_from(["input_required", "complete"]))
)
def test_any_other_result_is_no_round(result: dict[str, Any]) -> None:
    """Whatever stands in it."""
    result.pop("resultType", None)
    assert input_round(response(result)) is None
    assert input_round(response({"resultType": "complete", "text": "input_required"})) is None


def test_state_alone_is_a_round_without_questions() -> None:
    """The call goes on at once."""
    found = input_round(asking(requestState="s"))
    assert found is not None and found.questions is None and found.state == b'"s"'
    escaped = b'{"id":1,"result":{"resultType":"input_\\u0072equired","requestState":1}}'
    assert input_round(escaped) is not None


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"inputRequests": []},
        {"inputRequests": {"a": 1}},
        {"inputRequests": {"a": {"method": "tools/call"}}},
        {"inputRequests": {"a": {}}},
        {"inputRequests": {str(n): {"method": "roots/list"} for n in range(MOST_QUESTIONS + 1)}},
        {"requestState": "x" * LARGEST},
    ],
    ids=["nothing", "list", "number", "method", "none", "many", "large"],
)
def test_round_that_no_client_can_answer_is_broken(content: dict[str, Any]) -> None:
    """The server is at fault, not the client."""
    with pytest.raises(UpstreamBroken):
        input_round(asking(**content))


@given(_METHODS, _PARAMS, st.sampled_from(["2024-11-05", "2025-06-18", "2025-11-25"]))
def test_question_is_a_request_of_its_version(
    method: str, params: dict[str, Any] | None, version: str
) -> None:
    """Only the mode of an elicitation is told otherwise: a link has an id, a form no mode before there were any."""
    text = None if params is None else orjson.dumps(params)
    found = orjson.loads(request_of(Question("k", method, text), "n-1", version))
    expected = None if params is None else dict(params)
    if method == "elicitation/create" and expected is not None:
        if expected.get("mode") == "url":
            expected["elicitationId"] = "n-1"
        elif version < "2025-11-25":
            expected.pop("mode", None)
    rest = {} if expected is None else {"params": expected}
    assert found == {"jsonrpc": "2.0", "id": "n-1", "method": method, **rest}


@given(_METHODS, st.dictionaries(st.text(max_size=5), st.integers(-9, 9), max_size=3))
def test_answer_is_the_result(method: str, result: dict[str, int]) -> None:
    """It goes back as the client spelled it."""
    assert orjson.loads(answer_to(Question("k", method, None), response(result))) == result


@pytest.mark.parametrize("error", [{"error": {"code": -1, "message": "no"}}, {"result": 3}, {}])
def test_form_that_was_not_answered_is_declined(error: dict[str, Any]) -> None:
    """A server that asks a person has to expect that."""
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, **error})
    assert answer_to(Question("k", "elicitation/create", None), body) == DECLINED


def test_error_in_the_place_of_an_answer_is_told() -> None:
    """There is no answer that would mean the same to a server; what is neither is refused."""
    question = Question("k", "roots/list", None)
    with pytest.raises(NotAnswered) as refused:
        answer_to(question, b'{"id":1,"error":{"code":-1}}')
    assert refused.value.error == b'{"code":-1}'
    with pytest.raises(BadJson):
        answer_to(question, b'{"id":1}')
