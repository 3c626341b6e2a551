"""The most that one result may weigh: whole items, never a piece of one."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.results.short_json import LEAST, limited, sentence
from adapter.wire.envelope import dump


def text(body: str) -> dict[str, Any]:
    return {"type": "text", "text": body}


def test_w16_a_result_that_fits_is_the_same_object() -> None:
    """Nothing is looked at twice."""
    result = {"content": [text("x")], "isError": False}
    assert limited(result, 1024) is result


def test_w16_whole_items_go_and_the_golden_sentence_comes_last() -> None:
    """What fits stays as it was, in its order; the result is no error for that."""
    result = {"content": [text("a"), text("b" * 2000), text("c")], "_meta": {"k": 1}}
    cut = limited(result, 1024)
    assert cut == {
        "content": [
            text("a"),
            text("c"),
            text(
                "\n\n[SYSTEM INTERVENTION: Payload truncated at 1KB to prevent memory crash. "
                "You MUST use pagination (limit/offset) or filters to retrieve smaller result sets.]"
            ),
        ],
        "_meta": {"k": 1},
    }


def test_w16_everything_counts() -> None:
    """Images and structured content weigh what their JSON weighs; the latter comes first."""
    image = {"type": "image", "data": "A" * 3000, "mimeType": "image/png"}
    assert limited({"content": [image]}, 2048)["isError"] is True
    both = {"content": [text("x" * 900)], "structuredContent": {"x": "x" * 900}}
    cut = limited(both, 1500)
    assert cut["structuredContent"] == both["structuredContent"]
    assert len(cut["content"]) == 1
    assert "isError" not in cut


def test_w16_only_what_has_nothing_left_is_an_error() -> None:
    """A failure stays one."""
    assert limited({"content": [text("x" * 5000)]}, 1024)["isError"] is True
    assert limited({"content": [text("a"), text("x" * 5000)], "isError": True}, 1024)["isError"] is True


def test_w16_metadata_beyond_the_limit_goes_too() -> None:
    """Also what is no content cannot pass by the limit; what says that a result is complete stays."""
    cut = limited({"resultType": "complete", "content": [text("a")], "_meta": {"x": "y" * 5000}}, 0)
    assert cut == {"resultType": "complete", "content": [text("a"), text(sentence(LEAST))]}


def test_the_sentence_says_the_limit() -> None:
    """In the units of the golden string; less than the least is the least."""
    assert "truncated at 1KB " in sentence(10)
    assert "truncated at 2.0MB " in sentence(2 * 1024 * 1024)
    assert "truncated at 64KB " in sentence(64 * 1024)


BODY = st.text(max_size=40).map(lambda body: body * 30) | st.text('é漢🎉\ud800"\\', max_size=400)
ITEM = st.builds(text, BODY) | st.builds(
    lambda data: {"type": "image", "data": data}, st.text("AB=", max_size=2000)
)
RESULT = st.fixed_dictionaries(
    {"content": st.lists(ITEM, max_size=8)},
    optional={
        "structuredContent": st.dictionaries(st.text(max_size=5), BODY, max_size=3),
        "isError": st.booleans(),
        "_meta": st.dictionaries(st.text(max_size=5), BODY, max_size=2),
        "resultType": st.just("complete"),
    },
)


@given(RESULT, st.integers(0, 4000))
def test_w16_egress_never_exceeds_its_limit_and_never_cuts(result: dict[str, Any], limit: int) -> None:
    """The JSON is within the limit and whole, every item is one that came, in the order they came."""
    cut = limited(result, limit)
    assert len(dump(cut)) <= max(limit, LEAST)
    assert json.loads(dump(cut)) == cut
    if cut is result:
        return
    *kept, last = cut["content"]
    assert last == text(sentence(limit))
    coming = iter(result["content"])
    assert all(any(item is each for each in coming) for item in kept)
    assert cut.get("structuredContent") in (None, result.get("structuredContent"))
