"""The token endpoint in an issuer's metadata: the issuer's own, and one that may be told a secret."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.token_endpoints import takes_secrets, token_endpoint_in

ISSUER = "https://login.example"


def metadata(**members: Any) -> bytes:
    return orjson.dumps({"issuer": ISSUER, "token_endpoint": f"{ISSUER}/token", **members})


def test_endpoint_is_found() -> None:
    """It may be on another host: the issuer says so."""
    assert (
        token_endpoint_in(metadata(token_endpoint="https://api.example/t"), ISSUER) == "https://api.example/t"
    )


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (b"<html>", "is not JSON"),
        (b"[]", "another issuer"),
        (metadata(issuer=f"{ISSUER}/"), "another issuer"),
        (metadata(issuer=None), "another issuer"),
        (metadata(token_endpoint=None), "no usable token_endpoint"),
        (metadata(token_endpoint="http://login.example/token"), "no usable token_endpoint"),
        (metadata(token_endpoint="https://user@login.example/token"), "no usable token_endpoint"),
    ],
)
def test_metadata_that_are_refused(document: bytes, sentence: str) -> None:
    """The secret goes to no server that the issuer did not name under its own name."""
    with pytest.raises(ValueError, match=sentence):
        token_endpoint_in(document, ISSUER)


@pytest.mark.parametrize(
    ("url", "fits"),
    [
        ("https://login.example/token?a=b", True),
        ("http://127.0.0.1:9000/token", True),
        ("http://localhost/token", True),
        ("http://[::1]/token", True),
        ("http://10.0.0.1/token", False),
        ("http://127.0.0.1.evil.example/token", False),
        ("https://a@b/", False),
        ("https://b/#c", False),
        ("https://b/ c", False),
        ("https://b:x/", False),
        ("https:///c", False),
        ("https://b/\u00e4", False),
        ("https://b/" + "c" * 4096, False),
        ("ftp://b/", False),
        ("https://[", False),
    ],
)
def test_urls_that_may_be_told_a_secret(url: str, fits: bool) -> None:
    """https, or this machine."""
    assert takes_secrets(url) is fits


@given(st.binary(max_size=64) | st.text(max_size=64).map(lambda text: metadata(token_endpoint=text)))
def test_strange_metadata_end_in_a_sentence(document: bytes) -> None:
    """Whatever an issuer publishes, the outcome is a usable endpoint or a ValueError."""
    try:
        found = token_endpoint_in(document, ISSUER)
    except ValueError:
        return
    assert takes_secrets(found)
