"""Formats of texts, and where in a value a schema asks for them."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.rules.schema.checker import FORMATS, compile_schema
from tests.cpu_time import least_cpu

LONGEST = 2048


def unformatted(schema: Any, value: Any) -> list[tuple[Any, str, str]]:
    faults = compile_schema(schema, formats=True).judged(value).faults
    return [(fault.path, fault.keyword, fault.problem) for fault in faults if fault.keyword == "format"]


IN = {
    "date": ["2026-01-31", "2024-02-29"],
    "date-time": ["2026-01-31T10:11:12Z", "2026-01-31t10:11:12.5+01:30", "1990-12-31T23:59:60Z"],
    "duration": ["P1D", "P2W", "PT1H30M", "P1Y2M3DT4H5M6S"],
    "email": ["a@b", "ann.o'neil+tag@mail.example.org"],
    "hostname": ["localhost", "a-1.example.org"],
    "ipv4": ["127.0.0.1"],
    "ipv6": ["::1", "2001:db8::7"],
    "time": ["10:11:12Z", "10:11:12.345-08:00"],
    "uri": ["https://example.org/a?b#c", "urn:isbn:1", "mailto:a@b"],
    "uuid": ["00000000-0000-0000-0000-00000000000a", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"],
}
OUT = {
    "date": ["2026-02-30", "2026-1-1", "26-01-01", "2026-01-01T", "2026-13-01", "２０２６-01-01"],
    "date-time": ["2026-01-31", "2026-01-31 10:11:12Z", "2026-01-31T10:11:12", "2026-01-31T24:00:00Z"],
    "duration": ["P", "PT", "P1S", "1D", "P1DT", "PT1D"],
    "email": ["a", "@b", "a@", "a b@c", "a@b c", "a@-b", ".a@b", "a@b..c", "ä@b", "a@b\n"],
    "hostname": ["", "-a", "a-", "a..b", "a_b", "a" * 64, "a." * 127 + "abc", "a\n"],
    "ipv4": ["127.0.0.256", "127.1", "0127.0.0.1", "1.2.3.4/5"],
    "ipv6": ["127.0.0.1", "::g", "fe80::1%eth0", ":::"],
    "time": ["10:11:12", "25:00:00Z", "10:60:00Z", "10:11:12+25:00"],
    "uri": ["example.org", "/a/b", "https://a b", "http://[::1", "https://ä", "", "a\tb:c"],
    "uuid": ["2eb8aa08aa9811eab4aa73b441d16380", "{00000000-0000-0000-0000-00000000000a}", "x"],
}


@pytest.mark.parametrize(("word", "text"), [(word, text) for word, texts in IN.items() for text in texts])
def test_v5_a_text_in_its_format_passes(word: str, text: str) -> None:
    """Of each format some spellings that its standard gives."""
    assert unformatted({"format": word}, text) == []


@pytest.mark.parametrize(("word", "text"), [(word, text) for word, texts in OUT.items() for text in texts])
def test_v5_a_text_in_no_format_is_told(word: str, text: str) -> None:
    """With the name of the format."""
    assert unformatted({"format": word}, text) == [((), "format", f"Invalid {word}")]


@pytest.mark.parametrize("word", FORMATS)
def test_v5_a_text_takes_a_time_that_is_linear_in_it(word: str) -> None:
    """Also one that is written to keep a matcher busy."""
    for piece in ("a", "a.", "1", "P1", "a@", "::", "0.", "!", "-", "1Y1M"):
        text = (piece * LONGEST)[:LONGEST]

        def match(texts: tuple[str, str] = (text + "\0", text[:-1] + "\0")) -> None:
            for each in texts:
                list(unformatted({"format": word}, each))

        assert least_cpu(match) < 0.05


MAIL = {"type": "string", "format": "email"}
SCHEMA = {
    "properties": {
        "one": MAIL,
        "many": {"items": MAIL},
        "pair": {"prefixItems": [{}, MAIL], "items": MAIL},
        "map": {"additionalProperties": MAIL},
        "both": {"allOf": [{"properties": {"in": MAIL}}]},
        "odd": {"format": "isbn"},
        "either": {"anyOf": [MAIL, {}]},
    }
}


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ({"one": "x"}, [("one",)]),
        ({"many": ["a@b", "x", "y"]}, [("many", 1), ("many", 2)]),
        ({"pair": ["x", "y", "z"]}, [("pair", 1), ("pair", 2)]),
        ({"map": {"a": "x", "b": "a@b"}}, [("map", "a")]),
        ({"both": {"in": "x"}}, [("both", "in")]),
        ({"odd": "x", "either": "x", "other": "x", "one": 1, "many": "x"}, []),
        (["x"], []),
    ],
)
def test_v5_formats_are_looked_for_where_they_always_hold(value: Any, places: list[Any]) -> None:
    """Through members, items and allOf; a choice may be made otherwise, and an unknown format says nothing."""
    assert sorted(path for path, _, _ in unformatted(SCHEMA, value)) == places
