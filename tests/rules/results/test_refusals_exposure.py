"""What a caller may read of an exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import QuotaReached
from adapter.rules.results.outcomes import ToolUserError
from adapter.rules.results.refusals import LONGEST, exposed, public_line
from tests.cpu_time import at_most

SECRET = st.text("ABCdef0123456789", min_size=8, max_size=16).map(lambda text: f"Zq{text}")


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        ("no such table: users", "no such table: users"),
        ("boom\n  File 'x', line 3", "boom"),
        ("\n\n  late", "late"),
        ("db password=hunter2", "db password=[redacted]"),
        ("{'password': 'hun ter', 'a': 1}", "{'password': [redacted], 'a': 1}"),
        ("api_key => abc,def rest", "api_key => [redacted] rest"),
        ("the password is 'hunter2'", "the password is [redacted]"),
        ("Authorization: Bearer abcdef.ghi", "Authorization: [redacted]"),
        ("sent Bearer abcdefghijk", "sent Bearer [redacted]"),
        ("cannot reach postgres://u:p@h:5/db?x=1 now", "cannot reach [redacted] now"),
        ("mongodb+srv://u:p@h/db", "[redacted]"),
        ("jdbc:mysql://h/db", "[redacted]"),
        ("sqlite:////var/lib/x.db is locked", "[redacted] is locked"),
        ("GET https://u:p@ss/w@h.example/a failed", "GET https://[redacted]@h.example/a failed"),
        ("see https://h.example/a/b?token=abc&x=1", "see https://h.example/a/b?token=[redacted]&x=1"),
        ("[Errno 2] No such file: '/srv/a b/c.txt'", "[Errno 2] No such file: [path]"),
        ("error:/srv/app/x.py failed", "error:[path] failed"),
        ("~/.ssh/id_rsa and C:\\Users\\me\\x", "[path] and [path]"),
        ("file:///etc/passwd", "[path]"),
        ("eyJhbGciOi.eyJzdWIi.abc rejected", "[redacted] rejected"),
        ("key ghp_abcdefghijklmnop is revoked", "key [redacted] is revoked"),
        ("and/or 1/2, a/b/c, 3 > 2", "and/or 1/2, a/b/c, 3 > 2"),
    ],
)
def test_w9_an_exception_is_read_without_secrets(message: str, seen: str) -> None:
    """The first line, without credentials, connection strings, telling values and paths."""
    assert exposed(RuntimeError(message)) == seen


def test_w9_texts_for_callers_are_verbatim() -> None:
    """A tool's own sentence and those of the catalogue, in either mode."""
    said = ToolUserError("Your password=x is\nin /a/b/c " + "." * 600)
    assert exposed(said) == exposed(said, expose="safe", trace_id="t") == str(said)
    assert exposed(QuotaReached(), expose="safe") == QuotaReached.hint


def test_w9_safe_says_where_to_look() -> None:
    """A general sentence, with the trace id where there is one."""
    assert exposed(RuntimeError("x"), expose="safe", trace_id="4bf9") == "The call failed. Trace: 4bf9"
    assert exposed(RuntimeError("x"), expose="safe", trace_id="") == "The call failed."


class Broken(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_an_exception_without_a_text_is_its_kind() -> None:
    """Also one whose own code fails."""
    assert exposed(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert exposed(Broken()) == "Broken"


def test_w9_a_message_is_capped_at_five_hundred_characters() -> None:
    """A page of a driver's text is not for callers."""
    assert public_line("x" * LONGEST) == "x" * LONGEST
    assert len(public_line("word " * 1000)) <= LONGEST
    assert public_line("word " * 1000).endswith("…")


PLACES = st.sampled_from(
    [
        "password={}",
        "PASSWORD: {} x",
        'config "db_password" = "{}"',
        "DB_SECRET_KEY='{} more'",
        "x-api-key: {}",
        "access_token={}&y=1",
        "Authorization: Basic {}",
        "postgresql://app:{}@db/app",
        "redis://:{}@cache:6379/0",
        "https://user:{}@host/",
        "amqp://{}",
        "/home/{}/data/x",
        "'/srv/my files/{}.txt'",
        "C:\\keys\\{}",
        "Server=db;Uid=sa;Pwd={};Database=x",
        "client_secret={},",
    ]
)


@given(PLACES, SECRET, st.text("abc ,;:(", max_size=10))
def test_w9_no_secret_is_told_in_any_of_its_places(place: str, secret: str, around: str) -> None:
    """Whatever stands before and behind it."""
    assert secret not in public_line(f"{around} {place.format(secret)} {around}")


@given(st.text() | st.text("/a:@='\"\\ token", max_size=300))
def test_any_message_becomes_one_short_line(message: str) -> None:
    """No text breaks it."""
    seen = public_line(message)
    assert len(seen) <= LONGEST
    assert len(seen.splitlines()) <= 1


@pytest.mark.parametrize(
    "piece", ["/a", "a-", "password", "'/", "x://", "a@", "token='\\", "~/", "eyJ", "=", " "]
)
def test_a_long_message_takes_no_long_time(piece: str) -> None:
    """What it costs does not depend on what somebody writes."""
    with at_most(2):
        public_line(piece * (20_000 // len(piece)))
        public_line((piece * 20 + " ") * 1000)
