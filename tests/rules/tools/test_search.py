"""Finding tools by words: what a model asks for comes first, always in the same order, and never for long."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.tools.search import MOST_KNOWN, ONE_LINE, Index, SearchHit, index_of, one_line, words
from adapter.wire.piecewise import at_once
from tests.cpu_time import at_most
from tests.wire.pieces import timed


def index(**tools: dict[str, Any]) -> Index:
    return at_once(index_of({name: orjson.dumps({"name": name, **tool}) for name, tool in tools.items()}))


def search(definitions: dict[str, bytes], query: str) -> tuple[list[SearchHit], int]:
    return at_once(at_once(index_of(definitions)).search(query, 5))


def names(found: Index, query: str, limit: int = 10) -> list[str]:
    return [each.name for each in at_once(found.search(query, limit))[0]]


BROWSER = index(
    browser_click={"description": "Performs a click on a web page.", "inputSchema": {"type": "object"}},
    browser_take_screenshot={
        "title": "Take a screenshot",
        "description": "Takes a picture of the current page. It cannot click.",
        "inputSchema": {"type": "object", "properties": {"filename": {"type": "string"}}},
    },
    browser_file_upload={
        "description": "Uploads one or several files.",
        "inputSchema": {"type": "object", "properties": {"paths": {"type": "array"}}},
    },
    getPdf={"description": "Saves the page."},
)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("click", "browser_click"),
        ("take a picture", "browser_take_screenshot"),
        ("screenshots", "browser_take_screenshot"),
        ("upload file", "browser_file_upload"),
        ("paths", "browser_file_upload"),
        ("PDF", "getPdf"),
        ("getpdf", "getPdf"),
        ("browser_click", "browser_click"),
        ("the filename of a screen", "browser_take_screenshot"),
    ],
)
def test_what_is_asked_for_comes_first(query: str, first: str) -> None:
    """Names count most, then titles, parameters and descriptions; beginnings of words count too."""
    assert names(BROWSER, query)[0] == first


def test_no_word_finds_every_tool_by_name() -> None:
    """An empty query is a way to read on through all of them."""
    found, total = at_once(BROWSER.search(" … ", 2))
    assert ([each.name for each in found], total) == (["browser_click", "browser_file_upload"], 4)


def test_nothing_alike_finds_nothing() -> None:
    """A tool that has no word of the query is no answer."""
    assert at_once(BROWSER.search("weather", 10)) == ([], 0)


def test_only_allowed_tools_are_found() -> None:
    """What a scope may not see is not counted either."""
    found, total = at_once(BROWSER.search("page", 10, allowed={"getPdf", "other"}))
    assert ([each.name for each in found], total) == (["getPdf"], 1)


def test_text_without_spaces_is_found_by_parts_of_it() -> None:
    """Scripts without spaces between words are looked into, not taken for one long word."""
    found = index(
        shot={"description": "現在のページの画面を保存します"}, mail={"description": "電子メールを送信します"}
    )
    assert names(found, "画面の保存")[0] == "shot"


def test_a_description_becomes_one_short_line() -> None:
    """No line break, nothing unseen, and no more than a glance."""
    assert one_line("  Draws\n\ta\u200b chart. ") == "Draws a chart."
    assert len(one_line("word " * 1000)) <= ONE_LINE


def test_names_are_read_as_the_words_they_are_made_of() -> None:
    """However a server joins words, they are found one by one and in any case."""
    assert list(words("getUploadURL snake_case kebab-case HTTPServer v2 Straße ﬁle")) == (
        ["get", "upload", "url", "snake", "case", "kebab", "case", "http", "server", "v2", "strasse", "file"]
    )


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=20, unique=True), st.text(max_size=40))
def test_the_order_of_the_catalogue_does_not_count(tools: list[str], query: str) -> None:
    """Two replicas whose upstreams list in another order answer the same."""
    defined = {name: orjson.dumps({"description": name[::-1]}) for name in tools if name.isprintable()}
    backwards = dict(reversed(defined.items()))
    assert search(defined, query) == search(backwards, query)


def test_definitions_of_any_kind_are_indexed() -> None:
    """An upstream's definitions are data like any other: what is not text is not read."""
    found = index(
        odd={
            "title": 1,
            "description": ["x"],
            "inputSchema": {"properties": {"a": True, "b": {"properties": 1}}},
        },
        broken={"inputSchema": []},
    )
    assert names(found, "odd") == ["odd"]
    assert names(found, "b") == ["odd"]


def test_ten_thousand_tools_are_searched_in_an_instant() -> None:
    """A long query over a large catalogue takes less than a tenth of a second of CPU."""
    body = " ".join(f"word{number}" for number in range(30))
    definitions = {
        f"tool_{number}": orjson.dumps({"description": f"{body} only{number}", "inputSchema": {}})
        for number in range(10_000)
    }
    found = timed(index_of(definitions))
    with at_most(0.5):
        hits, total = timed(found.search("word1 word2 word3 only77", 10))
    assert (hits[0].name, total) == ("tool_77", 10_000)


def test_a_catalogue_of_hostile_words_holds_nobody_up() -> None:
    """Words without end, and hundreds of them alike in every tool: no piece of the work is long, nor is the index."""
    endless = {
        f"t{tool}": orjson.dumps({"description": " ".join(f"{tool:x}{word:x}" for word in range(150))})
        for tool in range(2000)
    }
    found = timed(index_of(endless))
    assert repr(found) == f"<Index of 2000 tools: {MOST_KNOWN} words>"
    alike = orjson.dumps({"description": " ".join(f"word{number}" for number in range(100))})
    found = timed(index_of({f"t{tool}": alike for tool in range(10_000)}))
    assert timed(found.search(" ".join(f"word{number % 10}" for number in range(32)), 100))[1] == 10_000
