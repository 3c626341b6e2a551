"""What of a result is the adapter's own word on files, and what is the tool's data."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.rules.files.structured_artifacts import Shown, ShownFile
from adapter.rules.results.short_json import attachments


def shown(number: int, **more: Any) -> Shown:
    return Shown(
        f"artifact://s/{number}",
        str(number),
        ShownFile("a.txt", "text/plain", 1, "0" * 64),
        None,
        False,
        **more,
    )


DATA = {"type": "text", "text": "{}"}
LINK = {"type": "resource_link", "uri": "https://example.org", "name": "the tool's own"}


def test_all_blocks_of_all_artifacts_are_the_adapters() -> None:
    """Links apart from files, in the order of the content; a link of the tool's own is its data."""
    first, second = shown(1, raw="x"), shown(2, download_url="https://example.org/2")
    content = [DATA, *first.blocks(), LINK, *second.blocks()]
    meta = {"artifact": first.meta, "artifacts": [first.meta, second.meta], "own": 1}
    found = attachments({"content": content, "_meta": meta})
    assert found.data == [DATA, LINK]
    assert [block["type"] for block in found.links] == ["resource_link", "resource_link", "text"]
    assert [block["resource"]["text"] for block in found.files] == ["x"]
    assert found.members == {"_meta": {"artifact": first.meta, "artifacts": [first.meta, second.meta]}}


def test_why_a_file_was_not_kept_is_the_adapters_word() -> None:
    """So is what it has put there under its own name; how far the result is complete stays too."""
    result = {
        "content": [DATA],
        "resultType": "complete",
        "_meta": {"artifact_error": "No room.", "adapter/truncated": True, "x": 1},
    }
    assert attachments(result).members == {
        "resultType": "complete",
        "_meta": {"artifact_error": "No room.", "adapter/truncated": True},
    }


@pytest.mark.parametrize(
    "artifact", [None, "text", {}, {**shown(1).meta, "more": 1}, {**shown(1).meta, "filename": {"a": 1}}]
)
def test_what_the_adapter_never_writes_is_not_the_adapters(artifact: Any) -> None:
    """An entry with other members, or with members in its members, keeps nothing."""
    content = [DATA, *shown(1).blocks()]
    found = attachments({"content": content, "_meta": {"artifact": artifact}})
    assert found.data is content
    assert found.members == {}


@pytest.mark.parametrize("result", [{}, {"content": None, "_meta": []}, {"content": "odd", "_meta": {}}])
def test_a_result_without_any_is_all_data(result: dict[str, Any]) -> None:
    """Whatever its content is."""
    found = attachments(result)
    assert (found.data, found.links, found.files, found.members) == (result.get("content"), (), (), {})
