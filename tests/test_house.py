"""The shape of the code, and the way to what a stranger looks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house import HOUSE, circles, code_lines, look, setting_keys
from tests.words import totals

TESTS = Path(__file__).parent
CONTRIBUTING = HOUSE.parent / "CONTRIBUTING.md"
WHERE = CONTRIBUTING.read_text().partition("<!-- begin: where -->")[2].partition("<!-- end: where -->")[0]


OF_THE_WHOLE = {"attacks", "bench", "faults", "soak", "e2e", "end_to_end"}
"""Folders of tests for the running adapter as a whole, which have no module."""

OF_SEVERAL = {"wire/test_costs.py": "compares what all readers of messages cost"}
"""Tests of more than one module, each with the reason."""


CEILINGS = {
    "lines with code in adapter/": 70_996,
    "modules": 495,
    "lines with code in tests/": 102_327,
    "settings": 348,
    "constructors of more than 7 values": 10,
    "circles of imports": 0,
}
"""What the house may measure at most. A commit lowers a ceiling; one that raises it names the feature it pays for."""


MOST_WORDS = {"by hand": 34_000, "generated": 18_000}
"""What README.md and docs/ may have; these only go down. ``python -m tests.words`` counts."""


def test_the_documentation_stays_short() -> None:
    """A page that says more says something else less."""
    by_hand, generated = totals()
    assert by_hand <= MOST_WORDS["by hand"] and generated <= MOST_WORDS["generated"]


def test_the_house_stays_below_its_ceilings() -> None:
    """No change makes the code larger without saying so."""
    house = look()
    measured = {
        "lines with code in adapter/": code_lines(HOUSE),
        "modules": len(house.modules),
        "lines with code in tests/": code_lines(TESTS),
        "settings": len(setting_keys()),
        "constructors of more than 7 values": len(house.constructors_above(7)),
        "circles of imports": len(circles()),
    }
    assert {name: size for name, size in measured.items() if size > CEILINGS[name]} == {}


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


def test_a_test_has_the_name_and_the_folder_of_its_module() -> None:
    """A test is ``test_MODULE.py`` or ``test_MODULE_TOPIC.py``, so that a search for a module also finds its tests."""
    strays = []
    for path in TESTS.rglob("test_*.py"):
        name = path.relative_to(TESTS)
        if name.parent == Path() or OF_THE_WHOLE.intersection(name.parts) or str(name) in OF_SEVERAL:
            continue
        modules = {each.stem for each in (HOUSE / name.parent).glob("*") if each.suffix in (".py", "")}
        if not any(f"{path.stem}_".startswith(f"test_{module}_") for module in modules):
            strays.append(str(name))
    assert strays == []


@pytest.mark.parametrize(
    "noun",
    [
        *("circuit_breaker", "upload_consumer", "result_cache", "rate_limit", "quota"),
        *("http_ranges", "origin_check", "idle_sessions", "drift", "resumption", "renewal"),
        *("timeouts", "redaction", "visibility", "code_mode", "signed_urls"),
    ],
)
def test_one_search_of_a_noun_leads_to_a_file(noun: str) -> None:
    """The field's word is in the name of a module."""
    assert [path for path in HOUSE.rglob("*.py") if noun in Path(path).stem]
