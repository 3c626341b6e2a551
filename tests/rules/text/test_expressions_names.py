"""Patterns of names and URIs, and the names that servers may read in others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.text.expressions import (
    LONGEST_PATTERN,
    ExpressionInvalid,
    NamePattern,
    name_reading,
    uri_part_reading,
    uri_reading,
)


def allows(pattern: str, name: str) -> bool:
    read = name_reading(name)
    return read is not None and NamePattern(pattern).allows(name, read, uri=False)


def denies(pattern: str, name: str) -> bool:
    read = name_reading(name)
    return read is None or NamePattern(pattern).denies(name, read, uri=False)


def uri_allowed(pattern: str, uri: str) -> bool:
    read = uri_reading(uri)
    return read is not None and NamePattern(pattern).allows(uri, read, uri=True)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("read_file", "read_file", True),
        ("read_*", "read_file", True),
        ("read_*", "read_", True),
        ("read_?", "read_", False),
        ("*", "any thing\n", True),
        ("a.b", "axb", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("read_*", "Read_file", False),
        ("Read_*", "Read_file", True),
        ("read_*", "xread_file", False),
    ],
)
def test_a_pattern_matches_whole_names_exactly(pattern: str, name: str, fits: bool) -> None:
    """Only the asterisk and the question mark are special, and case counts."""
    assert allows(pattern, name) is fits


@pytest.mark.parametrize(
    "name", ["DELETE_all", "delete\u200b_all", " delete_all ", "\uff44elete_all", "delete_all\0x", "x" * 5000]
)
def test_a_pattern_denies_what_reads_like_a_match(name: str) -> None:
    """Case, form, invisible characters and spaces around it take no name past a pattern."""
    assert denies("delete_*", name)
    assert not denies("delete_*", "create_all")


@pytest.mark.parametrize("name", ["get_\u200b", "get_\ufb01"])
def test_a_pattern_allows_no_name_that_reads_like_another(name: str) -> None:
    """What fits only as it is written may be another tool to its server."""
    assert not allows("get_?", name)


@pytest.mark.parametrize(
    ("uri", "fits"),
    [
        ("file:///public/a.txt", True),
        ("file:///public/", True),
        ("file:///public/a/b%20c.txt", True),
        ("file:///public/../secret", False),
        ("file:///public/%2e%2e/secret", False),
        ("file:///public/%252e%252e%252fsecret", False),
        ("file:///public/..\\secret", False),
        ("file:///public/..;x=1/secret", False),
        ("file:///public/./../secret", False),
        ("file:///public/\uff0e\uff0e/secret", False),
        ("file:///public/\u200b../secret", False),
        ("file:///public/a/../b.txt", True),
        ("file:///secret", False),
        ("file:///public/" + "%25" * 8 + "41", True),
        ("file:///public/%25252525252541", False),
        ("file:///public/%00", False),
        ("file:///public/" + "a" * 9000, False),
    ],
)
def test_a_uri_is_judged_as_its_server_may_read_it(uri: str, fits: bool) -> None:
    """Escapes, backslashes and dots lead out of no folder that a pattern allows."""
    assert uri_allowed("file:///public/*", uri) is fits


@pytest.mark.parametrize(
    "uri", ["file:///public/.\t./home/c", "file:///public/%2e\n./home/c", "file:///public/.%09./home/c"]
)
def test_line_breaks_and_tabs_hide_no_dots(uri: str) -> None:
    """Parsers of URLs remove them, and the official SDK of Python uses such a one."""
    assert not uri_allowed("file:///public/*", uri)
    assert uri_reading(uri) == "file:/home/c"


@pytest.mark.parametrize(
    ("uri", "part"),
    [
        ("file://localhost/payroll/b", "file:/payroll/b"),
        ("file:payroll/b", "file:/payroll/b"),
        ("file:////payroll/b", "file:/payroll/b"),
        ("file:///home/payroll/b", "file:/home/payroll/b"),
        ("file:///secret.txt?a#b", "file:/secret.txt"),
        ("file:///a;x/secret.txt;v=1/", "file:/a/secret.txt"),
        ("HTTPS://me:pw@Host.example.:443/a//b/../c", "https:/host.example/a/c"),
        ("https://host.example:8443/a", "https:/host.example:8443/a"),
        ("note:a/b?c", "note:a/b"),
    ],
)
def test_a_part_of_a_uri_says_the_place(uri: str, part: str) -> None:
    """Without anything that a server may leave out of account."""
    assert uri_part_reading(uri) == part


@pytest.mark.parametrize("uri", ["a\0b", "\ufdfa" * 8000, "x" * 8193])
def test_a_uri_without_a_certain_reading_has_no_part(uri: str) -> None:
    """Also one whose characters read like very many."""
    assert uri_reading(uri) is None and uri_part_reading(uri) is None


def test_escapes_in_a_pattern_are_those_in_uris() -> None:
    """A pattern may be written with escapes, as URIs are."""
    assert uri_allowed("file:///my%20files/*", "file:///my%20files/a")
    assert uri_allowed("http://host/read?path=public/*", "http://host/read?path=public/a")
    assert not uri_allowed("http://host/read?path=public/*", "http://host/read?path=public/../etc")


@pytest.mark.parametrize(
    "source", ["", "x" * (LONGEST_PATTERN + 1), "file:///a/../b", "..", "a\ue000", "%2525252525252541"]
)
def test_a_pattern_that_cannot_be_used_is_refused(source: str) -> None:
    """What would match nothing, or not what it says, is noticed at start."""
    with pytest.raises(ExpressionInvalid):
        NamePattern(source)


def test_a_repr_shows_the_pattern() -> None:
    """As operators wrote it."""
    assert repr(NamePattern("read_*")) == "<NamePattern 'read_*'>"


@given(st.text(max_size=40))
def test_what_is_denied_by_itself_is_denied_in_capitals(name: str) -> None:
    """A name that is a pattern denies itself, whatever case it is written in."""
    literal = name.replace("*", "x").replace("?", "x")
    try:
        pattern = NamePattern(literal)
    except ExpressionInvalid:
        return
    for spelled in (literal, literal.upper(), literal.lower(), f" {literal}"):
        if name_reading(spelled) == name_reading(literal):
            assert denies(pattern.source, spelled)


@given(st.text(alphabet="ab./\\%2eE;?#:", max_size=30))
def test_a_reading_of_a_uri_is_read_as_itself(uri: str) -> None:
    """Reading twice finds no other URI, so nothing is left to be resolved."""
    read = uri_reading(uri)
    if read is not None:
        assert uri_reading(read) == read
