"""Which request goes on with which answer, and what is kept between."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import GrantRequired
from adapter.rules.access.principals import Scope
from adapter.rules.calls.rounds import (
    INPUT,
    READING,
    STATES_KEPT,
    TELLING,
    PendingRound,
    asks_for_input,
    decode,
    elicitations,
    encode,
    input_required,
    is_repeatable,
    member_of,
    own_input,
    round_key,
    says_repeatable,
    state_of,
    takes_urls,
    tool_error,
)
from adapter.wire.envelope import Envelope, read_envelope

SCOPE = Scope("5" * 32, "principal:ann\udc80")
any_text = st.text(st.characters(exclude_categories=[]))
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | any_text,
    lambda inner: st.lists(inner) | st.dictionaries(any_text, inner),
    max_leaves=8,
)


def asking(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "input_required", **members}}


def test_state_is_a_text() -> None:
    """Null counts as absent, and what is no text is none of ours."""
    assert state_of({"requestState": "s"}) == "s"
    assert state_of({"requestState": None}) is state_of({"requestState": 7}) is state_of([]) is None


def test_only_a_result_that_asks_is_one_to_remember() -> None:
    """A complete result may have a member of that name, an error has no result."""
    assert asks_for_input(asking(requestState="s", inputRequests={})) == "s"
    assert asks_for_input(asking(inputRequests={})) is None
    assert asks_for_input({"result": {"resultType": "complete", "requestState": "s"}}) is None
    assert (
        asks_for_input({"error": {"code": 1}}) is asks_for_input({"result": []}) is asks_for_input([]) is None
    )


@given(any_text, any_text, any_text, any_json, any_text)
def test_a_request_has_one_key(scope: str, server: str, tool: str, arguments: Any, state: str) -> None:
    """Whatever its arguments hold, and in whichever order they stand."""
    key = round_key(scope, server, tool, arguments, state)
    assert len(key) == 64 and key == round_key(scope, server, tool, arguments, state)
    if isinstance(arguments, dict):
        turned = dict(reversed(arguments.items()))
        assert key == round_key(scope, server, tool, turned, state)


@pytest.mark.parametrize(
    "other",
    [
        ("t", "server", "tool", {"a": 1}, "state"),
        ("scope", "servert", "ool", {"a": 1}, "state"),
        ("scope", "server", "tool", {"a": 2}, "state"),
        ("scope", "server", "tool", {"a": "1"}, "state"),
        ("scope", "server", "tool", None, "state"),
        ("scope", "server", "tool", {"a": 1}, "state2"),
    ],
)
def test_another_request_has_another_key(other: tuple[str, str, str, Any, str]) -> None:
    """Another scope, tool, argument or state; parts are not run together."""
    assert round_key(*other) != round_key("scope", "server", "tool", {"a": 1}, "state")


def test_a_round_is_found_by_its_last_states() -> None:
    """A client goes on from the last, or sends one of the few before it again; older ones are let go."""
    pending = PendingRound("1", SCOPE, 5.0, {})
    assert pending.latest is None
    gone = [key for number in range(STATES_KEPT + 2) for key in pending.add_state(f"k{number}", None)]
    assert gone == ["k0", "k1"] and pending.latest == f"k{STATES_KEPT + 1}"
    assert pending.add_state("k5", "own") == [] and pending.latest == "k5"


@given(st.dictionaries(any_text, any_json), st.dictionaries(any_text, st.none() | any_text))
def test_a_round_comes_back_as_it_was(notes: dict[str, Any], states: dict[str, str | None]) -> None:
    """Out of its row, whatever it holds."""
    pending = PendingRound("1", SCOPE, 5.5, notes, states)
    assert decode(encode(pending)) == pending


@pytest.mark.parametrize(
    "row",
    [b"", b"x", b"[]", b"{}", b'{"format":2}', b'{"format":1,"scope":[]}', b'{"format":1,"scope":["a","b"]}'],
)
def test_what_is_no_round_is_said_to_be_none(row: bytes) -> None:
    """ValueError, and nothing else."""
    with pytest.raises(ValueError):
        decode(row)


# --- the forms of a link in an answer, and the person's own answer in a message --------------------------------


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


# --- messages that may be sent twice, and above all those that may not -----------------------------------------


def message(method: str, *, request: bool = True, **params: object) -> bytes:
    body: dict[str, object] = {"jsonrpc": "2.0", "method": method, "params": params}
    return orjson.dumps(body | ({"id": 1} if request else {}))


def repeatable(body: bytes, *tools: str) -> bool:
    """Whether that body may be sent twice where calls of ``tools`` may."""
    return is_repeatable(read_envelope(body), lambda name: name in tools)


@pytest.mark.parametrize("method", sorted(READING))
def test_reading_may_be_repeated(method: str) -> None:
    """A request that changes nothing may be sent twice, whatever is known of tools."""
    assert repeatable(message(method))
    assert is_repeatable(read_envelope(message(method)), None)


@pytest.mark.parametrize(
    "method",
    ["initialize", "tools/call", "logging/setLevel", "resources/subscribe", "tasks/cancel", "x/list", ""],
)
def test_what_may_change_something_is_sent_once(method: str) -> None:
    """Also a session that is opened, a method that nobody here knows, and a response."""
    assert not repeatable(message(method))
    assert not repeatable(b'{"jsonrpc":"2.0","id":1,"result":{}}')


def test_notifications_that_say_the_same_twice() -> None:
    """The protocol's own do; any other may mean anything, and so may a request that is named like one."""
    assert all(repeatable(message(method, request=False)) for method in TELLING)
    assert not repeatable(message("notifications/tools/call", request=False))
    assert not repeatable(message("tools/list", request=False))
    assert not repeatable(message("notifications/cancelled"))


def test_a_tool_is_called_twice_only_where_it_is_known() -> None:
    """The name decides; a call without a name is of no known tool, and without knowledge there is none at all."""
    assert repeatable(message("tools/call", name="read"), "read")
    assert not repeatable(message("tools/call", name="write"), "read")
    assert not repeatable(message("tools/call"), "read")
    assert not is_repeatable(read_envelope(message("tools/call", name="read")), None)


@given(st.lists(st.sampled_from(["ping", "read", "write", "told", "answered"]), min_size=1, max_size=6))
def test_a_batch_is_repeatable_where_all_its_members_are(kinds: list[str]) -> None:
    """One member that may have run is enough."""
    bodies = {
        "ping": message("ping"),
        "read": message("tools/call", name="read"),
        "write": message("tools/call", name="write"),
        "told": message("notifications/progress", request=False),
        "answered": b'{"jsonrpc":"2.0","id":1,"result":{}}',
    }
    batch = b"[" + b",".join(bodies[kind] for kind in kinds) + b"]"
    assert repeatable(batch, "read") == (not {"write", "answered"} & set(kinds))


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (b'{"name":"a","annotations":{"readOnlyHint":true}}', True),
        (b'{"name":"a","annotations":{"idempotentHint":true,"destructiveHint":true}}', True),
        (b'{"name":"a","annotations":{"readOnlyHint":false}}', False),
        (b'{"name":"a","annotations":{"readOnlyHint":"true"}}', False),
        (b'{"name":"a","annotations":{"readOnlyHint":1}}', False),
        (b'{"name":"a","annotations":[]}', False),
        (b'{"name":"a"}', False),
        (b"[]", False),
        (b"{", False),
    ],
)
def test_only_a_plain_true_is_a_hint(definition: bytes, expected: bool) -> None:
    """Text, numbers and what is no definition promise nothing."""
    assert says_repeatable(definition) is expected
