"""The order of stages in docs/pipeline.md as it is, and a test for each requirement."""

from __future__ import annotations

from tests.traceability import PAGE, REQUIREMENTS, missing, written

MUST = {f"H{number}" for number in range(1, 12)} | {f"V{number}" for number in range(1, 21)}


def test_each_stage_and_each_rule_is_shown_by_a_test() -> None:
    """Some test is named after each."""
    assert REQUIREMENTS.keys() >= MUST
    assert MUST.intersection(missing()) == set()


def test_the_order_is_the_one_of_now() -> None:
    """``python -m tests.traceability`` writes it."""
    page = PAGE.read_text()
    assert written(page) == page
