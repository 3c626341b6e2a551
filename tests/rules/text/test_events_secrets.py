"""Credentials in text, for operators and for callers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.text.events import for_caller, for_log, is_telling

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
