"""The shape of the code, and the way to what a stranger looks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house import HOUSE, look

CONTRIBUTING = HOUSE.parent / "CONTRIBUTING.md"
WHERE = CONTRIBUTING.read_text().partition("<!-- begin: where -->")[2].partition("<!-- end: where -->")[0]


def test_no_folder_is_too_long_to_look_through() -> None:
    """Whoever opens a folder reads all its names at once."""
    assert {folder: count for folder, count in look().folders.items() if count > 24} == {}


def test_a_class_has_a_name_of_its_own() -> None:
    """Whoever searches for a class finds one; settings are called after what they set."""
    assert look().ambiguous == {}


def test_the_way_to_each_thing_is_right() -> None:
    """Every file that CONTRIBUTING names for a noun is there."""
    named = re.findall(r"`([\w/]+\.py)`", WHERE)
    assert len(named) > 20
    assert [name for name in named if not (HOUSE / name).exists()] == []


@pytest.mark.parametrize(
    "noun",
    [
        *(
            "circuit_breaker",
            "upload_consumer",
            "result_cache",
            "rate_limit",
            "quota",
            "http_ranges",
            "origin_check",
        ),
        *(
            "idle_sessions",
            "drift",
            "resumption",
            "renewal",
            "timeouts",
            "redaction",
            "visibility",
            "code_mode",
            "signed_urls",
        ),
    ],
)
def test_one_search_of_a_noun_leads_to_a_file(noun: str) -> None:
    """The field's word is in the name of a module."""
    assert [path for path in HOUSE.rglob("*.py") if noun in Path(path).stem]
