"""The table of docs/eras.md."""

from __future__ import annotations

from tests.eras_table import PAGE, written


def test_the_table_is_that_of_the_matrix() -> None:
    """``python -m tests.eras_table`` writes it from what each cell is tested to have."""
    page = PAGE.read_text()
    assert page == written(page)
