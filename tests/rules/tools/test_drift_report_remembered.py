"""What is remembered of drift that was met."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.tools.drift import (
    MOST,
    MOST_SCOPES,
    Change,
    Drift,
    DriftSighting,
    DriftSummary,
    RememberedDrift,
    Rename,
    decode_remembered,
    encode_remembered,
)
from adapter.rules.tools.drift_report import counts


def meeting(digest: str = "d", scope: str = "s", *, own: bool = False, baseline: str = "b") -> DriftSighting:
    return DriftSighting(
        baseline, digest, DriftSummary({"changed": 1}, "click changed"), 7.0, scope, "ann", own
    )


def after(*meetings: DriftSighting) -> RememberedDrift:
    found = RememberedDrift("b")
    for each in meetings:
        found = found.with_meeting(each)
    return found


def test_each_scope_counts_once() -> None:
    """However often it met the same; who met it first stays."""
    found = after(meeting(), meeting(), meeting(scope="t")._replace(by="bob", at=9.0), meeting(digest="e"))
    assert [(each.first.digest, each.count, each.first.by, each.first.at) for each in found.met] == [
        ("d", 2, "ann", 7.0),
        ("e", 1, "ann", 7.0),
    ]
    assert (found.as_data()["since"], found.sessions) == (7.0, 3)


def test_the_first_and_the_last_catalogues_are_remembered() -> None:
    """Of those between there is a number."""
    found = after(*(meeting(digest=f"{number}") for number in range(MOST + 5)))
    assert [each.first.digest for each in found.met] == [*map(str, range(MOST - 1)), str(MOST + 4)]
    assert found.more == 5 and found.as_data()["more"] == 5


def test_scopes_are_known_up_to_a_number() -> None:
    """Beyond it they are counted all the same."""
    found = after(*(meeting(scope=f"{number}") for number in range(MOST_SCOPES + 10)))
    assert found.sessions == MOST_SCOPES + 10 and len(found.met[0].scopes) == MOST_SCOPES


def test_another_baseline_begins_anew() -> None:
    """What was met before an operator accepted is settled."""
    found = after(meeting(), meeting(baseline="c", digest="x"))
    assert (found.baseline, [each.first.digest for each in found.met]) == ("c", ["x"])


def test_what_only_others_saw_can_be_left_out() -> None:
    """A scope that saw both has met drift; one that sees other tools than its neighbour has not."""
    found = after(meeting(), meeting(digest="e"), meeting(digest="e", own=True)).of_those_who_saw_both()
    assert [each.first.digest for each in found.met] == ["e"]


@given(st.lists(st.builds(meeting, st.sampled_from("def"), st.sampled_from("stu"), own=st.booleans())))
def test_what_is_written_reads_back(meetings: list[DriftSighting]) -> None:
    """Through any number of meetings."""
    assert decode_remembered(encode_remembered(after(*meetings))) == after(*meetings)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"baseline":"b","met":[{}],"more":0}', b"\x00"])
def test_a_row_of_another_version_is_refused(value: bytes) -> None:
    """It is told from one that remembers nothing."""
    with pytest.raises(ValueError):
        decode_remembered(value)


def test_what_is_told_names_no_session() -> None:
    """Only public ids, and names without what follows from a token."""
    told = after(meeting()).as_data()
    assert told["by"] == "ann" and told["sessions"] == 1
    (one,) = told["catalogues"]
    assert one == {
        "digest": "d",
        "since": 7.0,
        "by": "ann",
        "scope": "s",
        "sessions": 1,
        "counts": {"changed": 1},
        "what": "click changed",
    }


def test_drift_is_counted_by_kind() -> None:
    """Less safe tools are among the changed ones."""
    found = Drift(("a",), ("b", "c"), (Rename("d", "e"),), (Change("f", ("x",), ("readOnlyHint",)),))
    assert counts(found) == {"changed": 1, "added": 1, "renamed": 1, "removed": 2, "less_safe": 1}
    assert found.size == 5
