"""Locators: what a result names, holds and links to, however odd the result."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.locators import Embedded, Locator, embedded, linked
from adapter.rules.text.expressions import ExpressionInvalid
from tests.cpu_time import at_most


def said(*texts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts]}


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("Saved to /tmp/out/shot.png.", ["/tmp/out/shot.png"]),
        ("Saved:/tmp/a.png, /tmp/b.png; /tmp/a.png!", ["/tmp/a.png", "/tmp/b.png"]),
        ('{"path": "/tmp/my shot.png"}', ["/tmp/my shot.png", "/tmp/my"]),
        ("`/tmp/my shot (1).png`", ["/tmp/my shot (1).png", "/tmp/my"]),
        ("[Shot](file:///tmp/my%20shot.png)", ["/tmp/my shot.png"]),
        ("file://localhost/tmp/%E5%90%8D.png FILE:/tmp/b", ["/tmp/名.png", "/tmp/b"]),
        ("file://elsewhere/tmp/a.png", []),
        ("file:///C:/out/a.png C:\\out\\b.png", ["C:/out/a.png", "C:\\out\\b.png"]),
        ("已保存到/tmp/名前.png。完成", ["/tmp/名前.png"]),
        ("./shot.png ../a/b.png a/b.png http://h/a/b.png ~/c.png", []),
        ("nothing here / or there", []),
        ("", []),
    ],
)
def test_the_built_in_expressions(text: str, paths: list[str]) -> None:
    """Absolute paths and file URLs, with the punctuation around them left out; nothing relative, no web page."""
    assert Locator("regex").located(said(text)) == paths


def test_expressions_of_the_configuration() -> None:
    """Each gives its first group, or the whole match, over all text blocks; nothing else is tried then."""
    locator = Locator("regex", None, [r"wrote (\S+)(!)?", r"out-\d+"])
    result = said("wrote a/b.png! /tmp/x", "out-7 wrote file:///tmp/c%20d")
    assert locator.located(result) == ["a/b.png!", "/tmp/c d", "out-7"]
    assert repr(locator) == "<Locator regex: 2>"
    assert Locator("regex", None, [r"(a)?b"]).located(said("b ab")) == ["a"]
    assert Locator("regex", None, ["x+"]).located(said("axxb")) == ["xx"]
    for none in ("(", "(?=a)", r"(a)\1"):
        with pytest.raises(ExpressionInvalid):
            Locator("regex", None, [none])


def test_an_expression_of_many_instructions_reads_less_text() -> None:
    """What a search may cost is bounded, whatever the expression and the text."""
    many, few = Locator("regex", None, [r"([\p{L}\p{N}]{8})\.png"]), Locator("regex", None, [r"(\w{8})\.png"])
    result = said(" " * 1_000_000 + "abcdefgh.png")
    assert few.located(result) == ["abcdefgh.png"[:8]]
    assert many.located(result) == []


def test_a_text_of_endless_matches_gives_no_more_than_can_be_tried() -> None:
    """Each match may look ahead to the end of the text."""
    with at_most(5):
        Locator("regex", None, [r"(/\S+\.png|/)"]).located(said("/" * 1_000_000))


@pytest.mark.parametrize(
    ("key", "paths"),
    [
        ("path", ["/a"]),
        ("files[].path", ["/b", "/c"]),
        ("files.path", ["/b", "/c"]),
        ("deep.er", ["/e e"]),
        ("grid[][]", ["/f"]),
        ("number", []),
        ("absent.path", []),
        ("path.more", []),
    ],
)
def test_structured_content(key: str, paths: list[str]) -> None:
    """A dotted key leads through objects and lists to texts."""
    content = {
        "path": "/a",
        "files": [{"path": "/b"}, {"path": ["/c", 7]}, {}, None],
        "deep": {"er": "file:///e%20e"},
        "grid": [["/f"]],
        "number": 1,
    }
    locator = Locator("structured", key)
    assert locator.located({"structuredContent": content}) == paths
    assert locator.located({}) == []
    assert locator.located({"structuredContent": None}) == []


@pytest.mark.parametrize("mode", ["embedded", "resource", "none", "structured"])
def test_other_modes_name_no_paths(mode: Any) -> None:
    """Nor does the structured one without a key."""
    result = {**said("/tmp/x"), "structuredContent": {"path": "/a"}}
    assert Locator(mode).located(result) == []


def test_what_can_be_no_path_is_left_out() -> None:
    """A NUL, nothing at all, more than any system takes, or what has no bytes."""
    content = {"paths": ["a\0b", "", "/" + "é" * 2048, "file://[", "/\ud800", "/ok", "file:///%FF"]}
    assert Locator("structured", "paths").located({"structuredContent": content}) == ["/ok", "/\udcff"]


def test_there_are_bounds() -> None:
    """A mebibyte of text and a hundred candidates, whatever an upstream sends."""
    many = " ".join(f"/tmp/{number}" for number in range(1000))
    assert len(Locator("regex").located(said(many))) == 100
    assert Locator("regex").located(said("x" * (1 << 20), "/tmp/late")) == []
    assert Locator("regex").located(said("x" * ((1 << 20) - 10), " /tmp/early")) == ["/tmp/earl"]
    assert len(Locator("structured", "p").located({"structuredContent": {"p": many.split()}})) == 100


@pytest.mark.parametrize("unit", ["/", "\"/'`", "file:/", "C:\\", '"/a', "/a/", "'/ ", ": /"])
def test_hostile_text_takes_no_time(unit: str) -> None:
    """Endless beginnings of paths are read in one go."""
    assert len(Locator("regex").located(said(unit * ((1 << 20) // len(unit))))) <= 100


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def test_embedded_files() -> None:
    """Images, sounds, blobs and texts come in order, with what is said of their names and types."""
    content = [
        {"type": "image", "data": base64_of(b"\x89PNG"), "mimeType": "image/png"},
        {"type": "text", "text": "no file"},
        {"type": "audio", "data": base64_of(b"RIFF"), "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///out/%E5%90%8D.pdf", "blob": base64_of(b"%PDF")}},
        {"type": "resource", "resource": {"uri": "x:notes", "text": "né\ud800"}},
        {"type": "resource", "resource": {"uri": "http://h/", "text": "<p>", "mimeType": "text/html"}},
    ]
    assert embedded({"content": content}) == [
        Embedded(None, "image/png", b"\x89PNG"),
        Embedded(None, "audio/wav", b"RIFF"),
        Embedded("名.pdf", "application/octet-stream", b"%PDF"),
        Embedded("notes", "text/plain", "né?".encode()),
        Embedded(None, "text/html", b"<p>"),
    ]


@pytest.mark.parametrize("spelled", ["+/+/YQ==", "-_-_YQ==", "-_-_YQ", "+/+/\r\nYQ==\n", ""])
def test_base64_as_it_is_found(spelled: str) -> None:
    """With line breaks, of either alphabet, padded or not."""
    expected = b"\xfb\xff\xbfa" if spelled else b""
    assert embedded({"content": [{"type": "image", "data": spelled}]}) == [
        Embedded(None, "application/octet-stream", expected)
    ]


@pytest.mark.parametrize("data", ["a", "%%%%", "é", None, 7, "YQ==YQ=="])
def test_damaged_base64_is_no_file(data: Any) -> None:
    """It is left out, and others are not."""
    content = [{"type": "image", "data": data}, {"type": "image", "data": "YQ==", "mimeType": 7}]
    assert embedded({"content": content}) == [Embedded(None, "application/octet-stream", b"a")]


def test_links() -> None:
    """Each URI once, in order."""
    content = [
        {"type": "resource_link", "uri": "x://b", "name": "b"},
        {"type": "resource_link", "uri": "x://a"},
        {"type": "resource_link", "uri": "x://b"},
        {"type": "resource_link", "uri": 7},
        {"type": "resource", "resource": {"uri": "x://c", "text": ""}},
    ]
    assert linked({"content": content}) == ["x://b", "x://a"]
    assert len(linked({"content": [{"type": "resource_link", "uri": f"x:{n}"} for n in range(200)]})) == 100


words = st.sampled_from(
    ["content", "type", "text", "image", "data", "resource", "uri", "blob", "resource_link", "a"]
)
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(["content", "structuredContent"]), trees))
def test_any_result_is_survived(result: dict[str, Any]) -> None:
    """However odd a result is, it is read without an error and gives texts and bytes only."""
    for locator in (Locator("regex"), Locator("structured", "a.text[].uri")):
        assert all(isinstance(path, str) for path in locator.located(result))
    assert all(isinstance(file.data, bytes) for file in embedded(result))
    assert all(isinstance(uri, str) for uri in linked(result))


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_any_bytes_are_read_back(files: list[bytes]) -> None:
    """What was embedded is what is found."""
    content = [{"type": "image", "mimeType": "image/x", "data": base64_of(data)} for data in files]
    assert embedded({"content": content}) == [Embedded(None, "image/x", data) for data in files]
