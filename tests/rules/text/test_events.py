"""Events of the log: bounded in every direction, writable, and without secrets."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.text.events import (
    LONGEST_EVENT,
    LONGEST_TEXT,
    LONGEST_TRACEBACK,
    for_caller,
    for_log,
    is_telling,
    writable,
)

MOST_BYTES = 100_000
"""Bytes of a line: LONGEST_EVENT characters, each at most six bytes, and what stands around them."""


def size(event: dict[str, Any]) -> int:
    return len(orjson.dumps(writable(event)))


@pytest.mark.parametrize("key", ["token", "Set-Cookie", "session_id"])
def test_values_under_telling_keys_are_masked(key: str) -> None:
    """The key decides, at any depth and for any kind of value."""
    nested = {key: ["s3cret"], "list": [{key: 5}], "on": {key: True}}
    assert writable({"event": "e", key: "s3cret", "more": nested}) == {
        "event": "e",
        key: "***",
        "more": {key: "***", "list": [{key: "***"}], "on": {key: True}},
    }


def test_a_small_event_stays_as_it_is() -> None:
    """Numbers, nulls and nested values too."""
    event = {"event": "e", "n": 1, "x": 1.5, "none": None, "list": [1, "a", {"b": True}]}
    assert writable(event) == event


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1_000_000,
        "\x00" * 1_000_000,
        b"x" * 1_000_000,
        ["x" * 1000] * 1000,
        {f"{n}{'k' * 1000}": "v" * 1000 for n in range(1000)},
        [[["x" * 1000] * 100] * 100] * 100,
        10**5000,
        {1: object, (2, 3): RuntimeError("x" * 100_000)},
    ],
    ids=["text", "controls", "bytes", "list", "mapping", "depth", "integer", "objects"],
)
def test_an_event_is_bounded_whatever_is_in_it(value: Any) -> None:
    """In length, depth, members and bytes; and what stands beside it is still there."""
    event = writable({"event": "e", "value": value, "level": "info"})
    assert len(orjson.dumps(event)) < MOST_BYTES
    assert (event["event"], event["level"]) == ("e", "info")


def test_a_value_that_holds_itself_ends() -> None:
    """Depth is bounded, so nobody needs to look for circles."""
    circle: list[Any] = []
    circle.append(circle)
    assert size({"circle": circle}) < 200


def test_many_long_values_share_one_budget() -> None:
    """No event is longer than all of its texts may be together."""
    texts = list(writable({f"k{n}": "x" * LONGEST_TEXT for n in range(40)}).values())
    assert sum(map(len, texts)) < LONGEST_EVENT + 100


def test_of_a_long_traceback_both_ends_are_kept() -> None:
    """Its end says what happened, its beginning where."""
    lines = "\n".join(f"line {n}" for n in range(100_000))
    shown = writable({"exception": lines})["exception"]
    assert len(shown) <= LONGEST_TRACEBACK
    assert shown.startswith("line 0\n") and shown.endswith("line 99999")


def test_a_short_traceback_is_whole() -> None:
    """Also one that is longer than a name may be."""
    lines = "\n".join(f"line {n}" for n in range(200))
    assert writable({"exception": lines}) == {"exception": lines}


def test_no_secret_is_cut_in_two() -> None:
    """A user's part of a URL is known by what stands behind it, so more is read than is shown."""
    text = "x" * (LONGEST_TEXT - 20) + " https://ada:hunter2-hunter2@host/"
    assert "hunter" not in writable({"url": text})["url"]


def test_a_lone_surrogate_is_an_escape() -> None:
    """In names and in values: JSON can spell it, no line of UTF-8 can."""
    assert writable({"a\ud800": "b\udfff"}) == {"a\\ud800": "b\\udfff"}


class Broken:
    def __str__(self) -> str:
        raise ValueError


def test_what_cannot_be_said_is_its_kind() -> None:
    """Somebody's code fails no line."""
    assert writable({"it": Broken()}) == {"it": "<Broken>"}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), ANYTHING))
def test_every_event_can_be_written(event: dict[str, Any]) -> None:
    """Nothing in it breaks a line of the log."""
    assert size(event) < MOST_BYTES


# --- credentials in text, for operators and for callers ----------------------------------------------------------


SECRET = st.text("ABCdef0123456789", min_size=8, max_size=16).map(lambda text: f"Zq{text}")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sent Bearer s3cret. then", "sent Bearer *** then"),
        ("authorization: Bearer s3cret", "authorization: ***"),
        ("POST /x?token=s3cret&n=1", "POST /x?token=***&n=1"),
        ('{"api_key": "s3cret", "n": 1}', '{"api_key": ***, "n": 1}'),
        ("Mcp-Session-Id: s3cret", "Mcp-Session-Id: ***"),
        ("redis://user:s3cret@host/0 is down", "redis://***@host/0 is down"),
        ("http://u:a?b@host/x?token=s3cret", "http://***@host/x?token=***"),
        ("https://u:p@ss/w@host/@scope", "https://***@scope"),
        ("https://u:12/3w@host/", "https://***@host/"),
        ("https://host/@scope/name@1.0?token=s3cret", "https://host/@scope/name@1.0?token=***"),
        (
            "https://host:8080/@scope and http://[::1]:80/@me",
            "https://host:8080/@scope and http://[::1]:80/@me",
        ),
        ("http://host/path is up", "http://host/path is up"),
        ("cannot open /srv/app/x", "cannot open /srv/app/x"),
    ],
)
def test_operators_read_everything_but_credentials(text: str, shown: str) -> None:
    """Paths and hosts stay, because whoever mends something needs them."""
    assert for_log(text) == shown
    assert repr(for_log) == "<Redactor: ***>"


def test_callers_read_neither_connections_nor_paths() -> None:
    """The same credentials go, and what else is nobody's business."""
    assert (
        for_caller("redis://user:s3cret@host/0, token=x in /srv/app/x")
        == "[redacted] token=[redacted] in [path]"
    )


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "Authorization",
        "client_secret",
        "password",
        "Set-Cookie",
        "mcp-session-id",
        "session_id",
        "api_key",
        "db.connection_string",
        "dsn",
    ],
)
def test_a_key_tells_that_its_value_is_a_secret(key: str) -> None:
    """The same words in logs, in spans and in text."""
    assert is_telling(key)


@pytest.mark.parametrize("key", ["tool.name", "server", "why", "path", "stage"])
def test_most_keys_tell_nothing(key: str) -> None:
    """Else nothing could be read."""
    assert not is_telling(key)


PLACES = st.sampled_from(
    [
        "password={}",
        'config "db_password" = "{}"',
        "DB_SECRET_KEY='{} more'",
        "access_token={}&y=1",
        "Authorization: Basic {}",
        "redis://:{}@cache:6379/0",
        "https://user:{}@host/",
        "https://h/x?signature={}",
    ]
)


@given(PLACES, SECRET, st.text("abc ,;:(", max_size=10))
def test_no_secret_is_shown_to_anybody(place: str, secret: str, around: str) -> None:
    """Whatever stands before and behind it."""
    text = f"{around} {place.format(secret)} {around}"
    assert secret not in for_log(text)
    assert secret not in for_caller(text)
