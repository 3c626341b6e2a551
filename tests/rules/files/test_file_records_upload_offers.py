"""Offers of uploads: their rows, the names of their batches, and what becomes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.file_records import (
    HEARD_AGAIN,
    UploadOffer,
    UploadState,
    batch_of,
    decode_offer,
    encode_offer,
)


@given(
    st.builds(
        UploadOffer,
        st.text(max_size=20).filter(lambda text: text.isprintable()),
        st.text(st.characters(), max_size=20),
        st.text("0123456789abcdef", min_size=32, max_size=32),
        st.floats(0, 1e10),
        st.integers(0, 1 << 50),
        st.floats(0, 1e10),
    )
)
def test_a_row_gives_back_the_offer(offer: UploadOffer) -> None:
    """Whatever the names hold."""
    assert decode_offer(encode_offer(offer)) == offer


@pytest.mark.parametrize("row", [b"", b"{}", b"[]", b'"x"', b'{"format":2}', b'{"format":1,"principal":1}'])
def test_a_row_of_another_version_is_none(row: bytes) -> None:
    """It is read by whoever wrote it."""
    with pytest.raises(ValueError):
        decode_offer(row)


def test_the_name_of_a_batch_does_not_tell_the_id() -> None:
    """It stands in links; the id is asked with, and is exact to the last character."""
    upload_id = "0123456789abcdef" * 2
    batch = batch_of(upload_id)
    assert batch is not None and len(batch) == 32 and batch != upload_id and batch_of(batch) != batch
    for text in ("", upload_id[1:], upload_id + "\n", upload_id.upper(), "é" * 32, "\ud800" * 32):
        assert batch_of(text) is None


@pytest.mark.parametrize(
    ("now", "heard", "used", "state"),
    [
        (999.0, 0.0, False, "waiting"),
        (1000.0, 0.0, False, "expired"),
        (999.0, 0.0, True, "expired"),
        (999.0, 999.0 - HEARD_AGAIN, False, "waiting"),
        (999.0, 998.0, False, "receiving"),
        (1001.0, 1000.0, True, "receiving"),
    ],
)
def test_what_became_of_an_upload_without_files(
    now: float, heard: float, used: bool, state: UploadState
) -> None:
    """A batch that began in time may come in later; one that has come and has no files is over."""
    offer = UploadOffer("one", "ann:0", "0" * 32, 1000.0, 1, heard)
    assert offer.state(now, used=used) == state
