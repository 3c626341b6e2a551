"""The words with which a merged mount introduces itself."""

from __future__ import annotations

from adapter.relay.mounts.merged import LONGEST_INSTRUCTIONS, joined_instructions


def test_instructions_stand_under_the_name_of_their_server() -> None:
    """Servers without any are left out."""
    assert joined_instructions([("a", "Be kind. "), ("b", None), ("c", " "), ("d", "Be quick.")]) == (
        "# a\n\nBe kind.\n\n# d\n\nBe quick."
    )
    assert joined_instructions([("a", None)]) is None


def test_no_server_drowns_the_others() -> None:
    """Long instructions are cut."""
    joined = joined_instructions([("a", "x" * 100_000), ("b", "Be kind.")])
    assert joined is not None
    assert len(joined) < LONGEST_INSTRUCTIONS + 100
    assert joined.endswith("# b\n\nBe kind.")
