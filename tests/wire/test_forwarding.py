"""What replicas say to each other: any content, no seal but a genuine one, and failures that stay what they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import (
    AdapterError,
    InternalError,
    LimitReached,
    StoreUnavailable,
    UpstreamBroken,
    UpstreamNotStarted,
    UpstreamSilent,
)
from adapter.wire.forwarding import (
    LONGEST_HEAD,
    Seal,
    decode_failure,
    digest_of,
    disguised,
    encode_failure,
    kind_of,
    mark,
    read_seal,
)

KEY, OTHER_KEY = bytes(32), bytes([1]) * 32


def seal(content: bytes = b"{}body", head_size: int = 2, **claims: Any) -> Seal:
    whole = Seal("a", "c" * 32, "d" * 24, head_size, len(content), digest_of(content))
    return whole._replace(**claims)


@given(st.binary(max_size=100))
def test_a_seal_comes_back_and_covers_its_content_alone(content: bytes) -> None:
    """One byte more or another one is another content."""
    sealed = seal(content, 0)
    read, mac = read_seal(sealed.signed(KEY))
    assert read == sealed
    assert read.is_signed(mac, KEY)
    assert not read.is_signed(mac, OTHER_KEY)
    assert read.covers(content)
    assert not read.covers(content + b"x")
    assert not read.covers(bytes([content[0] ^ 1]) + content[1:] if content else b"x")


@pytest.mark.parametrize(
    "changed",
    [
        {"owner": "b"},
        {"challenge": "e" * 32},
        {"nonce": "e" * 24},
        {"head_size": 1},
        {"size": 7},
        {"digest": "0" * 64},
    ],
)
def test_no_claim_of_a_seal_can_be_changed(changed: dict[str, Any]) -> None:
    """Each is under the MAC, so a captured seal is good for the same request at the same replica only."""
    genuine = seal()
    _, mac = read_seal(genuine.signed(KEY))
    assert not genuine._replace(**changed).is_signed(mac, KEY)


@given(st.text(max_size=300))
def test_other_text_is_no_seal(text: str) -> None:
    """Whatever comes in the field is refused, and nothing else is raised."""
    with pytest.raises(ValueError, match="seal"):
        read_seal(text)


@pytest.mark.parametrize(
    "hostile",
    [
        seal(head_size=7),
        seal(b"x" * (LONGEST_HEAD + 1), LONGEST_HEAD + 1),
        seal(owner="a b"),
        seal(owner="a/b"),
        seal(owner=""),
        seal(owner="a" * 65),
        seal(nonce="xyz"),
        seal(size=10**13),
    ],
)
def test_a_seal_out_of_bounds_is_none(hostile: Seal) -> None:
    """Also with a good MAC: its numbers decide what is read."""
    with pytest.raises(ValueError, match="seal"):
        read_seal(hostile.signed(KEY))


def test_a_mark_is_that_of_one_exchange() -> None:
    """An answer counts only from whoever has the key, for this request, with this status and as what it is."""
    found = mark(KEY, "n1", "answer", 200)
    assert kind_of(found, KEY, "n1", 200) == "answer"
    assert kind_of(mark(KEY, "n1", "failure", 200), KEY, "n1", 200) == "failure"
    assert kind_of(found.replace("answer", "failure"), KEY, "n1", 200) is None
    assert kind_of(found, KEY, "n2", 200) is None
    assert kind_of(found, KEY, "n1", 404) is None
    assert kind_of(found, OTHER_KEY, "n1", 200) is None
    assert kind_of(None, KEY, "n1", 200) is None
    assert kind_of("answer \udcff", KEY, "n1", 200) is None


@given(st.text(st.characters(exclude_categories=[])), st.text(st.characters(exclude_categories=[])))
def test_a_secret_in_disguise_differs_as_the_secret_does(one: str, other: str) -> None:
    """Nobody learns it, and nobody without the key can compare it with a guess."""
    assert (disguised(KEY, one) == disguised(KEY, other)) == (one == other)
    assert disguised(KEY, one) != disguised(OTHER_KEY, one)
    assert len(disguised(KEY, one)) == 64


@pytest.mark.parametrize(
    "error",
    [
        UpstreamSilent("nothing for 3 s"),
        LimitReached("too many", data={"limit": 3}, retry_after=1.5),
        UpstreamNotStarted("the command is missing"),
        StoreUnavailable(),
        InternalError(),
    ],
)
def test_a_failure_stays_what_it_is(error: AdapterError) -> None:
    """Class, sentence, data, wait and the reason for operators."""
    found = decode_failure(encode_failure(error))
    assert type(found) is type(error)
    assert (str(found), found.data, found.retry_after, found.reason) == (
        str(error),
        error.data,
        error.retry_after,
        error.reason,
    )


def test_a_failure_of_a_newer_version_is_one_of_the_upstream() -> None:
    """Its sentence is kept; its code is not known here."""
    found = decode_failure(json.dumps({"code": "new", "message": "so it is"}).encode())
    assert (type(found), str(found)) == (UpstreamBroken, "so it is")


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b"{"])
def test_other_bytes_are_no_failure(data: bytes) -> None:
    """An answer that broke off is not taken for a failure of the catalogue."""
    with pytest.raises(ValueError):
        decode_failure(data)


def test_members_of_other_types_are_left_out() -> None:
    """A failure has a sentence in any case."""
    found = decode_failure(b'{"code":7,"message":1,"data":[],"retry_after":"x","reason":2}')
    assert (str(found), found.data, found.retry_after, found.reason) == (
        UpstreamBroken.hint,
        None,
        None,
        None,
    )
