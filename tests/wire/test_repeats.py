"""Whether an object has a key twice, anywhere in a text."""

from __future__ import annotations

import pytest

from adapter.errors import BadJson
from adapter.wire.repeats import repeats


@pytest.mark.parametrize(
    ("doc", "found"),
    [
        (b'{"a":1,"b":{"a":1}}', False),
        (b'{"a":[{"b":1,"\\u0062":2}]}', True),
        (b'{"a":1,"A":2}', False),
        (b'{"a":"a","b":["a","a"]}', False),
        (b'{"a":"x","b":{"c":"x","c":"x"}}', True),
        (b'{"a":1,"b":{"c":[{}]},"b":{"c":[{}]}}', True),
        (b'{"a":"\\"","b":"\\""}', False),
        (b'[{"a":%b,"b":1e999}]' % (b"1" * 5000), False),
        (b'"\\ud800"', False),
    ],
)
def test_a_key_is_found_twice_wherever_it_is(doc: bytes, found: bool) -> None:
    """Escaped spellings are the same key; no number is too large to be passed over."""
    assert repeats(doc) is found


def test_what_is_too_deep_is_refused() -> None:
    """Nobody says that nothing repeats where nobody could look."""
    with pytest.raises(BadJson):
        repeats(b"[" * 100_000 + b"]" * 100_000)
