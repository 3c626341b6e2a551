"""Answers of legacy servers as modern clients read them, and what subscriptions are told."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import UpstreamBroken
from adapter.rules.eras.legacy_server import (
    CACHEABLE,
    SERVER_INFO_KEY,
    agreed,
    discovered,
    error_code,
    modern_response,
    of_subscription,
    wanted_methods,
)

_NAMES = st.text() | st.sampled_from(["resultType", "ttlMs", "cacheScope", "_meta", "tools"])
_RESULTS = st.dictionaries(_NAMES, st.none() | st.integers(-9, 9) | st.text(), max_size=5)


@given(_RESULTS, st.sampled_from(["tools/call", *sorted(CACHEABLE)]))
def test_results_gain_what_the_era_requires(result: dict[str, Any], method: str) -> None:
    """Every result is complete, and tells its server; lists and reads say that nobody else may keep them."""
    result.pop("_meta", None)
    message = orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": result})
    found = orjson.loads(modern_response(message, method, b'{"name":"s"}', b'"other"'))
    assert found["id"] == "other"
    kept = {"ttlMs": 0, "cacheScope": "private"} if method in CACHEABLE else {}
    own = {"resultType": "complete", "_meta": {SERVER_INFO_KEY: {"name": "s"}}}
    assert found["result"] == result | own | kept


@pytest.mark.parametrize("result", [b"null", b"[]", b"1", b'{"_meta":3}'])
def test_result_that_is_no_object_is_broken(result: bytes) -> None:
    """There is no place for what the era requires."""
    with pytest.raises(UpstreamBroken):
        modern_response(b'{"jsonrpc":"2.0","id":1,"result":' + result + b"}", "tools/call", b"{}", None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (b"{}", None),
        (b'{"code":-32002}', -32002),
        (b'{"code":"x"}', None),
        (b'{"code":1.5}', None),
        (b"[]", None),
    ],
)
def test_code_of_an_error(error: bytes, code: int | None) -> None:
    """Anything may stand in the place of a code."""
    assert error_code(b'{"jsonrpc":"2.0","id":1,"error":' + error + b"}") == code


def test_odd_introductions_are_discovered_too() -> None:
    """What a server says of itself that is not of the right kind is left out."""
    odd = {"capabilities": {"tools": 3, "logging": {}}, "serverInfo": "s", "instructions": 5}
    assert discovered(odd)["capabilities"] == {"logging": {}}
    assert discovered({"capabilities": []})["capabilities"] == {} and "_meta" not in discovered(odd)


def test_subscription_agrees_to_what_the_server_declares() -> None:
    """Nothing else is told, and each resource once."""
    asked = {"toolsListChanged": True, "resourcesListChanged": True, "resourceSubscriptions": ["a", "b", "a"]}
    declared = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
    found = agreed(asked, declared)
    assert found == {"toolsListChanged": True, "resourceSubscriptions": ["a", "b"]}
    assert wanted_methods(found) == {"notifications/tools/list_changed", "notifications/resources/updated"}
    assert agreed(asked, {}) == agreed({"toolsListChanged": "yes"}, declared) == {}


@pytest.mark.parametrize("uris", ["a", [1], ["a"] * 1001])
def test_odd_resources_are_refused(uris: object) -> None:
    """A list that is none, or too long, is an error of the client's."""
    with pytest.raises(ValueError, match="at most 1000"):
        agreed({"resourceSubscriptions": uris}, {})


def test_notification_names_its_subscription() -> None:
    """Also one without params."""
    found = orjson.loads(of_subscription(b'{"jsonrpc":"2.0","method":"m"}', b'"s"'))
    assert found["params"] == {"_meta": {"io.modelcontextprotocol/subscriptionId": "s"}}
