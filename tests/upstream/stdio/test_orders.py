"""Orders to the supervisor: arguments and variables of any content arrive as they are."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.upstream.stdio.orders import HEAD, read_start, start_order

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
names = st.text("ABCäü_", min_size=1, max_size=5)


@given(
    st.integers(1, 10**9),
    st.lists(texts | st.just("\udcff"), min_size=1),
    st.dictionaries(names, texts),
    texts,
)
def test_an_order_is_read_as_it_was_written(
    number: int, argv: list[str], environment: dict[str, str], cwd: str
) -> None:
    """Empty texts, equals signs and bytes that are no text are kept."""
    order = start_order(number, argv, environment, cwd)
    body = order[HEAD:]
    assert int.from_bytes(order[:HEAD], "big") == len(body)
    variables = [os.fsencode(f"{name}={text}") for name, text in environment.items()]
    assert read_start(body.split(b"\0")) == (number, [*map(os.fsencode, argv)], variables, os.fsencode(cwd))


@pytest.mark.parametrize(
    ("argv", "environment", "cwd"), [(["a\0"], {}, "/"), (["a"], {"A\0": ""}, "/"), (["a"], {}, "/\0")]
)
def test_a_nul_is_refused(argv: list[str], environment: dict[str, str], cwd: str) -> None:
    """No argument, variable or folder can hold one, and it ends a field."""
    with pytest.raises(ValueError, match="NUL"):
        start_order(1, argv, environment, cwd)
