"""Text of strangers: what reads the same is the same, what nobody sees is gone."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.text.unicode import nfkc, reading, shown, visible
from tests.cpu_time import at_most

anything = st.text(st.characters(exclude_categories=[]))


@given(anything)
def test_honest_text_is_in_form_nfkc(text: str) -> None:
    """As Unicode has it, wherever no letter bears more than 64 marks."""
    assert nfkc(text) == unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize(
    "text",
    ["\u0301" * 200_000 + "\u0316" * 200_000, "\u0f73" * 200_000, "\uff9e\u0301" * 200_000],
    ids=["sorted marks", "marks that are letters", "halfwidth marks"],
)
def test_marks_without_end_take_linear_time(text: str) -> None:
    """Sorting 400,000 marks in one go would take a minute."""
    with at_most(5):
        nfkc(text)


def test_every_letter_that_is_a_mark_in_disguise_is_known() -> None:
    """A new version of Unicode may bring another; then it belongs into the list."""
    disguised = [
        chr(point)
        for point in range(0x80, 0x30000)
        if not unicodedata.combining(chr(point))
        and unicodedata.combining(unicodedata.normalize("NFKD", chr(point))[0])
    ]
    assert disguised == ["\u0f73", "\u0f75", "\u0f81", "\uff9e", "\uff9f"]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\u200bb\u2060c\ufeffd", "abcd"),
        ("\u202eevil\u202c \u2066x\u2069", "evil x"),
        ("go" + "".join(chr(0xE0000 + ord(letter)) for letter in "steal"), "go"),
        ("a\x00\x1b[31m\x7f\x85b", "a[31mb"),
        ("tab\tline\nline\r\nreturn\rover", "tab\tline\nline\r\nreturnover"),
        ("x\ufe0f\ufe01\U000e0101", "x"),
        ("half \ud800 pair", "half  pair"),
        ("⚠️ 1️⃣ naïve – “quoted” 日本", "⚠️ 1️⃣ naïve – “quoted” 日本"),
    ],
    ids=["zero width", "bidi", "tags", "controls", "lines", "selectors", "surrogate", "honest"],
)
def test_what_nobody_sees_goes(text: str, seen: str) -> None:
    """Everything else stays, the selector behind a symbol too."""
    assert visible(text) == seen


@given(anything)
def test_visible_text_stays_visible_in_nfkc(text: str) -> None:
    """Normalizing brings nothing invisible back, but for a selector whose symbol became letters."""
    seen = nfkc(visible(text)).replace("\ufe0e", "").replace("\ufe0f", "")
    assert visible(seen) == seen


@pytest.mark.parametrize(
    "name",
    [
        "delete_all",
        "Delete_All",
        "delete\u200b_all",
        "ｄｅｌｅｔｅ_all",
        "delete_al\u2113",
        "\u202edelete_all",
        " delete_all\t",
        "\u00a0delete_all\u2028",
        "\ud800delete_all",
    ],
)
def test_spellings_of_a_name_have_one_reading(name: str) -> None:
    """Case, form and what is invisible make no other name."""
    assert reading(name) == "delete_all"


@pytest.mark.parametrize("name", ["list", "L\u0130ST", "l\u0131st", "L\u0131\u017ft", "li\u0307st"])
def test_an_i_has_one_reading(name: str) -> None:
    """Readers that compare in capitals take the dotless one for it, and the dotted one too."""
    assert reading(name) == "list"


def test_hostile_text_is_shown_in_one_short_line() -> None:
    """What would move the cursor or turn the line around is escaped."""
    assert shown("a\n\x1b[2J\u202eb\U000e0041", 100) == "a\\u000a\\u001b[2J\\u202eb\\udb40\\udc41"
    assert shown("x" * 10**6, 5) == "xxxx…"
    assert len(shown("\u202e" * 10**6, 50)) == 50
