"""Ids of several servers are told apart, and lead back to the server that chose them."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.mounts.member_ids import HINTS, downward, member_id, upward

SERVERS = {"a": 1, "b-2": 2, "c_d": 3}
IDS = st.integers(-(2**53), 2**53) | st.text(max_size=20) | st.floats(allow_nan=False, allow_infinity=False)


@given(st.sampled_from(sorted(SERVERS)), IDS)
def test_an_id_leads_back_to_its_server(server: str, number: object) -> None:
    """Whatever a server calls its request, the client's answer is given to it under that very id."""
    asked = orjson.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"})
    shown = orjson.loads(downward(server, asked))["id"]
    found = member_id(shown, SERVERS)
    assert found is not None
    assert (found.server, orjson.loads(found.id)) == (server, number)


@given(IDS)
def test_equal_ids_of_two_servers_never_meet(number: object) -> None:
    """Two servers that choose one id are told apart."""
    asked = orjson.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"})
    assert orjson.loads(downward("a", asked))["id"] != orjson.loads(downward("b-2", asked))["id"]


@pytest.mark.parametrize(
    "value",
    [1, None, "", "a", "a.", "x.1", "a.{}", "a.1,2", 'a.1}{"', "a.true", "a.\ud800", ["a.1"], "a.null"],
)
def test_what_no_server_chose_leads_nowhere(value: object) -> None:
    """An id that a client made up is no server's, and none of it is ever written into a message."""
    assert member_id(value, SERVERS) is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0", "id":1,"result":{"content":[],"x":1.0}}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\\u0001"}}',
        b"no JSON with \\u and taskId",
        b'["method"]',
    ],
)
def test_all_else_keeps_its_bytes(data: bytes) -> None:
    """Results, and the tokens and ids that clients chose, pass as they came."""
    assert downward("a", data) is data


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (
            b'{"id": 7, "method":"roots/list","params":{"_meta":{"progressToken":"p"},"x":1.0}}',
            b'{"id": "a.7", "method":"roots/list","params":{"_meta":{"progressToken":"a.\\"p\\""},"x":1.0}}',
        ),
        (
            b'{"method":"notifications/cancelled","params":{"requestId":7}}',
            b'{"method":"notifications/cancelled","params":{"requestId":"a.7"}}',
        ),
        (
            b'{"id":1,"result":{"tasks":[{"taskId":"t"},{"taskId":"u"}]}}',
            b'{"id":1,"result":{"tasks":[{"taskId":"a.t"},{"taskId":"a.u"}]}}',
        ),
        (
            b'{"id":1,"result":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}',
            b'{"id":1,"result":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a.t"}}}}',
        ),
        (b'{"meth\\u006fd":"ping","id":1}', b'{"meth\\u006fd":"ping","id":"a.1"}'),
    ],
)
def test_ids_of_servers_are_marked_and_nothing_else(data: bytes, shown: bytes) -> None:
    """Ids of requests, tokens, and tasks of a server carry its name; every other byte stays."""
    assert downward("a", data) == shown


@given(st.text(max_size=20))
def test_a_task_leads_back(task: str) -> None:
    """A server hears of its task under the id that it chose."""
    told = downward("a", orjson.dumps({"id": 1, "result": {"task": {"taskId": task}}}))
    shown = orjson.loads(told)["result"]["task"]["taskId"]
    asked = orjson.dumps({"id": 2, "method": "tasks/get", "params": {"taskId": shown}})
    assert orjson.loads(upward("a", asked))["params"]["taskId"] == task


@given(st.text(max_size=20))
def test_a_state_leads_back(state: str) -> None:
    """It comes back to the server that gave it; another one gets no state that it would take for its own."""
    told = downward("a", orjson.dumps({"id": 1, "result": {"requestState": state}}))
    shown = orjson.loads(told)["result"]["requestState"]
    again = orjson.dumps({"id": 2, "method": "tools/call", "params": {"requestState": shown}})
    assert orjson.loads(upward("a", again))["params"]["requestState"] == state
    assert orjson.loads(upward("c_d", again))["params"]["requestState"] == f"a.{state}"


def test_ids_of_other_servers_stay_in_what_a_server_hears() -> None:
    """What looks like another server's task is left alone."""
    asked = b'{"id":2,"method":"tasks/get","params":{"taskId":"b.t"}}'
    assert upward("a", asked) is asked


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    """Whatever a server says, something leaves; what is plain leaves as it is."""
    assert any(hint in data for hint in HINTS) or downward("a", data) is data
    downward("a", b'{"method":' + data + b"}")


def test_a_mark_stands_for_the_server_in_ids_of_requests() -> None:
    """Ids of tasks, which outlive sessions, have none."""
    data = b'{"method":"ping","id":1,"params":{"taskId":"t"}}'
    assert downward("a", data, "a~f") == b'{"method":"ping","id":"a~f.1","params":{"taskId":"a.t"}}'
    assert member_id("a~f.1", ("a~f",)) == ("a~f", b"1")
