"""What an upstream says it can do, with what the adapter adds."""

from __future__ import annotations

import orjson
import pytest

from adapter.rules.tools.lists import announced


def announce(response: bytes, *, changing: bool = True) -> bytes:
    return announced(response, tools=True, resources=True, changing=changing)


def test_missing_capabilities_are_added() -> None:
    """Tools for the helper tool, resources for artifacts; everything else keeps its bytes."""
    came = b'{"id":1, "result":{"capabilities":{ "logging":{} },"serverInfo":{"v":1.0}}}'
    assert announce(came) == came.replace(
        b'"logging":{} ', b'"logging":{},"tools":{},"resources":{"listChanged":true} '
    )


def test_what_is_there_is_kept() -> None:
    """An upstream that subscribes goes on to, and tells of changes from now on."""
    came = b'{"id":1,"result":{"capabilities":{"tools":{"x":1},"resources":{"subscribe":true}}}}'
    assert announce(came) == came.replace(b'"subscribe":true', b'"subscribe":true,"listChanged":true')
    assert announce(came, changing=False) is came


def test_a_server_without_capabilities_gets_some() -> None:
    """The member itself is added where it is missing."""
    assert orjson.loads(announce(b'{"id":1,"result":{}}', changing=False))["result"] == {
        "capabilities": {"tools": {}, "resources": {}}
    }


@pytest.mark.parametrize(
    "odd", [b'{"id":1,"error":{"code":1}}', b'{"id":1,"result":{"capabilities":7}}', b"[]"]
)
def test_what_is_no_answer_stays_as_it_is(odd: bytes) -> None:
    """A refusal announces nothing."""
    assert announce(odd) is odd
