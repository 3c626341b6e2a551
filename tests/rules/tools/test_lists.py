"""Lists of an upstream with entries of the adapter's own."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import BadJson
from adapter.rules.tools.lists import (
    MOST_ITEMS,
    LongList,
    ended_with,
    has_no_such_method,
    long_response,
    next_cursor,
)
from adapter.wire.piecewise import at_once
from tests.wire.pieces import timed

OWN = {"name": "one_get_upload_url"}
UPSTREAM = b'{"jsonrpc":"2.0", "id":1,"result":{ "tools" : [ {"name":"shoot","n":1.0} , {"name":"click"} ],"x":1e400}}'


def test_modern_list_with_additions_is_private() -> None:
    """What one scope sees must not be served to another one from a cache."""
    public = b'{"id":1,"result":{"tools":[],"ttlMs":5,"cacheScope":"public"}}'
    result = orjson.loads(ended_with(public, "tools", [OWN], None, modern=True))["result"]
    assert (result["ttlMs"], result["cacheScope"]) == (5, "private")


def test_additions_stand_behind_the_upstreams_own() -> None:
    """With the cursor of what is still to come."""
    came = b'{"id":1,"result":{"resources":[{"uri":"a"}]}}'
    listed = ended_with(came, "resources", [{"uri": "b"}, {"uri": "c"}], "next", modern=False)
    assert listed == (
        b'{"id":1,"result":{"resources":[{"uri":"a"},{"uri":"b"},{"uri":"c"}],"nextCursor":"next"}}'
    )
    assert next_cursor(listed) == "next" and next_cursor(came) is None


def test_nothing_to_add_changes_nothing() -> None:
    """The same object comes back, so nobody writes it again."""
    assert ended_with(UPSTREAM, "tools", [], None, modern=True) is UPSTREAM


def test_what_is_no_list_stays_as_it_is() -> None:
    """Errors, results of another shape, and batches are not this adapter's to mend."""
    for odd in (
        b'{"id":1,"error":{"code":-32000,"message":"no"}}',
        b'{"id":1,"result":{"tools":{}}}',
        b'{"id":1,"result":[]}',
        b"[]",
    ):
        assert ended_with(odd, "tools", [OWN], None, modern=True) is odd


def test_unknown_method_is_told_from_other_errors() -> None:
    """Only then the adapter answers with a list of its own."""
    assert has_no_such_method(b'{"id":1,"error":{"code":-32601,"message":"?"}}')
    assert not has_no_such_method(b'{"id":1,"error":{"code":-32603,"message":"?"}}')
    assert not has_no_such_method(b'{"id":1,"result":{}}')


@given(st.lists(st.dictionaries(st.text(), st.integers(-9, 9) | st.text(), max_size=3), max_size=4))
def test_entries_of_the_upstream_survive(entries: list[dict[str, object]]) -> None:
    """Whatever they hold, they are there, in their order, before what is added."""
    response = orjson.dumps({"id": 1, "result": {"tools": entries}})
    last = orjson.loads(ended_with(response, "tools", [OWN], None, modern=False))["result"]["tools"]
    assert last == [*entries, OWN]


# --- long lists -----------------------------------------------------------------------------------------------


def test_a_long_response_is_what_it_says() -> None:
    """With its objects read one by one, and none of anything else."""
    items = [{"name": f"tool_{number}", "n": number} for number in range(5000)]
    message = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [*items, 7], "nextCursor": "c"}}
    found = timed(long_response(orjson.dumps(message), 1, "tools"))
    assert found is not None
    listed = found["result"].pop("tools")
    assert isinstance(listed, LongList) and list(listed) == items and len(listed) == 5000
    assert listed[3] == items[3] and list(listed[1:3]) == items[1:3] and listed.size > 100_000
    assert repr(listed) == "<LongList of 5000>"
    assert found == {"jsonrpc": "2.0", "id": 1, "result": {"nextCursor": "c"}}


def test_another_response_is_none() -> None:
    """By its id; and one without a list is as it is. What is no JSON ends there."""
    error = b'{"id":1,"error":{"code":-32000}}'
    assert at_once(long_response(error, 2, "tools")) is None
    assert at_once(long_response(error, 1, "tools")) == {"id": 1, "error": {"code": -32000}}
    endless = b'{"id":1,"result":{"tools":[%b7]}}' % (b"7," * MOST_ITEMS)
    assert at_once(long_response(endless, 1, "tools")) is None
    with pytest.raises(BadJson):
        at_once(long_response(b'{"id":1,"result":{"tools":[{"a":}]}}', 1, "tools"))


def test_pages_are_joined() -> None:
    """A list where all are; otherwise each is read when it is asked for."""
    one, long = [{"a": 1}], LongList([b'{"b":2}'])
    assert LongList.joined([one, one]) == [{"a": 1}, {"a": 1}]
    joined = LongList.joined([one, long])
    assert isinstance(joined, LongList) and list(joined) == [{"a": 1}, {"b": 2}]
