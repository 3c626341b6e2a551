"""Sealed states of parked calls: nothing but the text that was given counts, for what it was given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.eras.questions import CallState, owner_of, read_state

KEY = b"k" * 32
STATE = CallState("one.a-b", "0" * 32, 3, 1_800_000_000)
TEXT = STATE.sealed(KEY, "ada")


def test_state_is_read_as_it_was_sealed() -> None:
    """Its owner is told without the key."""
    assert read_state(TEXT, KEY, "ada") == STATE and owner_of(TEXT) == "one.a-b"
    assert owner_of(STATE._replace(owner="").sealed(KEY, "ada")) is None is owner_of("x")


@given(st.integers(0, len(TEXT) - 1), st.characters(max_codepoint=0x2FF))
def test_changed_text_is_none(at: int, character: str) -> None:
    """Whichever character of it is another one."""
    changed = TEXT[:at] + character + TEXT[at + 1 :]
    assert changed == TEXT or read_state(changed, KEY, "ada") is None


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """What a client makes up is no state."""
    assert read_state(text, KEY, "ada") is None is owner_of(text)


def test_state_is_bound() -> None:
    """To the key, and to who called what."""
    assert read_state(TEXT, b"x" * 32, "ada") is None is read_state(TEXT, KEY, "bea")
