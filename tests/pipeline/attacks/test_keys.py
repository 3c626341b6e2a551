"""Keys that nobody has to know."""

from __future__ import annotations

import hashlib

import pytest

from adapter.pipeline.auth.auth_stage import api_key


def test_w_the_digest_of_nothing_is_no_key() -> None:
    """Whoever sends no key at all would have it."""
    with pytest.raises(ValueError, match="not a key"):
        api_key({"sha256": [hashlib.sha256(b"k").hexdigest(), hashlib.sha256(b"").hexdigest()]}, {})
