"""Messages that may be sent twice, and above all those that may not."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.calls.rounds import READING, TELLING, is_repeatable, says_repeatable
from adapter.wire.envelope import read_envelope


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
    """Also a session that is opened, and a method that nobody here knows."""
    assert not repeatable(message(method))


def test_notifications_that_say_the_same_twice() -> None:
    """The protocol's own do; any other may mean anything, and so may a request that is named like one."""
    assert all(repeatable(message(method, request=False)) for method in TELLING)
    assert not repeatable(message("notifications/tools/call", request=False))
    assert not repeatable(message("tools/list", request=False))
    assert not repeatable(message("notifications/cancelled"))


def test_a_response_is_said_once() -> None:
    """What it answers may have a second question behind it."""
    assert not repeatable(b'{"jsonrpc":"2.0","id":1,"result":{}}')


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
