"""Fields that keep a browser from running a mount's answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.host_and_origin_check import NOSNIFF, SANDBOX, guarded, navigates


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/problem+json",
        "text/event-stream",
        "text/event-stream;charset=utf-8",
    ],
)
def test_data_is_only_kept_from_being_sniffed(kind: str) -> None:
    """JSON and event streams are no pages."""
    assert guarded([("Content-Type", kind)]) == [("Content-Type", kind), NOSNIFF]


@pytest.mark.parametrize(
    "kinds",
    [
        [],
        [""],
        ["text/html"],
        ["image/svg+xml"],
        ["text/html+json"],
        ["application/xhtml+xml"],
        ["application/json, text/html"],
        ["application/json;a=b, text/html"],
        ["application/json", "text/html"],
        ["text/html", "application/json"],
    ],
    ids=str,
)
def test_whatever_may_be_a_page_is_sandboxed(kinds: list[str]) -> None:
    """Also where an answer names several types, of which browsers choose one by rules of their own."""
    fields = [("content-type", kind) for kind in kinds]
    assert guarded(fields) == [*fields, NOSNIFF, SANDBOX]


@given(st.lists(st.tuples(st.sampled_from(["Content-Type", "X-Else"]), st.text())))
def test_every_answer_says_nosniff(fields: list[tuple[str, str]]) -> None:
    """Behind what it said already, which stays as it was."""
    given_ = guarded(fields)
    assert given_[: len(fields)] == fields
    assert NOSNIFF in given_


@pytest.mark.parametrize(
    ("mode", "said"), [("navigate", True), (" Navigate", True), ("cors", False), (None, False)]
)
def test_a_navigation_says_so(mode: str | None, said: bool) -> None:
    """Sec-Fetch-Mode is the browser's word, which no page can choose."""
    assert navigates(mode) is said
