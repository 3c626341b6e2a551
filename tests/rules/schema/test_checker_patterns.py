"""Patterns of schemas: they mean what ECMA-262 says, or are not judged."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from adapter.rules.schema.checker import compile_schema, why_not
from adapter.rules.schema.cost import SchemaTooLarge
from tests.cpu_time import at_most


def fits(pattern: str, text: str) -> bool | None:
    """Whether the pattern occurs in the text, None where nobody can tell."""
    checker = compile_schema({"pattern": pattern})
    return None if checker.unjudged else checker.judged(text).faults == []


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^[a-z0-9]+(-[a-z0-9]+)*$", "a-slug-that-is-longer-than-most-of-them", "A slug"),
        (r"^[\w.+-]+@([a-z0-9-]+\.)+[a-z]{2,}$", "ada.lovelace@mail.example.org", "ada@"),
        (r"^(\d{1,3}\.){3}\d{1,3}$", "192.168.100.200", "192.168"),
        ("^https?://.+$", "https://example.org/" + "x" * 3000, "ftp://example.org"),
        ("^(foo|bar)+$", "foobar", "foobaz"),
        ("b", "abc", "acd"),
        ("(a+)+$", "aa", "ab"),
        (r"^\p{L}+$", "Ünïcödé", "a1"),
        (r"^\p{Script=Greek}+$", "λόγος", "logos"),
        (r"^\u00e9\x41\cA$", "éA\x01", "e"),
        (r"^\s\S$", "\ufeffa", "\u200ba"),
        (r"^[\s]$", "\u2028", "x"),
        (r"^[^\S]$", "\u3000", "x"),
        ("^.$", "😀", "\n"),
        ("a$", "a", "a\n"),
        ("[[:alpha:]]", ":]", "x"),
        (r"\/\-\.", "/-.", "x"),
        ("(?<year>[0-9]{4})", "2024", "x"),
        ("", "", None),
    ],
)
def test_a_pattern_means_what_ecma_262_says(pattern: str, good: str, bad: str | None) -> None:
    """It occurs anywhere in the text, unless it says where."""
    assert (fits(pattern, good), None if bad is None else fits(pattern, bad)) == (
        True,
        None if bad is None else False,
    )


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        *[(each, "look-around") for each in ("(?=a)b", "(?<!a)b", r"(a)\1", r"(?<n>a)\k<n>")],
        *[
            (each, "invalid")
            for each in ("(?#()(a+)+$", r"\Aa\Z", r"[\B]", r"\u{110000}", r"\ud800", r"\xg0")
        ],
        *[
            (each, "invalid")
            for each in (r"\c1", r"\u{12", r"\p{Emoji=x}", r"\p{Nonsense}", "(", "[a", "a\\")
        ],
        *[(each, "invalid") for each in (r"\ud83d\ude00", r"[\b]", "[]", "[^]", "a{,2}b")],
        *[(each, "too large") for each in ("(?:a{900}){900}", r"(?:\p{L}{100}\p{N}{100}){9}")],
    ],
)
def test_what_the_engine_has_no_words_for_is_not_judged(pattern: str, why: str) -> None:
    """Nothing is refused for it, and whoever asks is told why. It takes a moment."""
    with at_most(0.3):
        assert fits(pattern, "a" * 41 + "!") is None
        assert why in str(why_not(pattern))


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "((a*)*)*b", "(.*)(.*)(.*)(.*)x"])
def test_what_takes_others_years_takes_a_moment(pattern: str) -> None:
    """Time is linear in the text, and each of these is judged."""
    with at_most(0.5):
        assert fits(pattern, "a" * 100_000 + "!") is False
        assert why_not(pattern) is None


def test_what_takes_long_to_compile_is_for_those_who_may() -> None:
    """The same pattern is refused where there is little time, and judged where there is more."""
    wide = r"^a\p{L}{1,40}$"
    with pytest.raises(SchemaTooLarge):
        compile_schema({"pattern": wide}, large=False)
    assert fits(wide, "a" + "é" * 40)


# --- beside an engine of JavaScript -------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *"ab0-.^$|()[]*+?{}:é😀",
        *("(?:", "[^", "{1,2}", "{,2}", "[]", "[^]", "(?<n>", "&&", "[:"),
        *(r"\d", r"\w", r"\s", r"\S", r"\.", r"\-", r"\/", r"\t", r"\x41", r"\u0041", r"\cA"),
        *(r"\ud83d\ude00", r"\u{61}", r"\p{L}", r"\P{L}"),
    ]
)
PATTERNS = st.lists(PIECES, max_size=7).map("".join)
TEXTS = st.text("ab0-. \u00a0é😀A\n:&{}[]\x01", max_size=6)

OF_RUST = re.compile(r"\[\^?\]|\[[^\]]*(?:\[|&&|--|~~)")

JUDGE = r"""
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
// Without the flag, which older engines do not have, only what it does not change is compared.
const old = (pattern, text) => /[\ud800-\udfff]|\\[pPu]/.test(pattern + text) ? null : new RegExp(pattern).test(text);
console.log(JSON.stringify(cases.map(([pattern, text]) => {
  try { return new RegExp(pattern, "u").test(text); } catch {}
  try { return old(pattern, text); } catch { return null; }
})));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_what_is_judged_is_judged_as_javascript_does() -> None:
    """Of random patterns, each against random texts: where both engines read the pattern, they agree, but for what
    only Rust knows in a class.
    """
    cases: list[tuple[str, str]] = []

    @settings(
        max_examples=3000, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(PATTERNS, TEXTS)
    def gather(pattern: str, text: str) -> None:
        if OF_RUST.search(pattern) is None:
            cases.append((pattern, text))

    gather()
    run = subprocess.run(
        ["node", "-e", JUDGE], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    theirs = json.loads(run.stdout)
    both = [
        (case, ours, judged)
        for case, judged in zip(cases, theirs, strict=True)
        if (ours := fits(*case)) is not None and judged is not None
    ]
    assert len(both) > 300
    assert [case for case, ours, judged in both if ours != judged] == []
