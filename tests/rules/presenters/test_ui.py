"""Interface blocks, and that nothing in them can leave them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.presenters import ui
from adapter.rules.presenters.blocks import Blocks, Suggestion, UiBlock, json_without_tags, without_tags

TAGS = ["ui_passthrough", "llm_directives", "domain_rules", "action_suggestions", "tool_error"]
HOSTILE = st.lists(
    st.sampled_from([*(f"</{tag}>" for tag in TAGS), *(f"<{tag}>" for tag in TAGS), "< / DOMAIN_RULES >"])
    | st.text(max_size=5)
    | st.sampled_from(["\n", "\r", "\u2028", "- ", "```", "<b>"]),
    max_size=12,
).map("".join)


def test_v13_each_helper_writes_its_kind() -> None:
    """Fences for what is code, Markdown for the rest."""
    assert ui.echarts({"series": []}) == UiBlock("echarts", '```echarts\n{\n  "series": []\n}\n```')
    assert ui.mermaid("graph TD; A-->B") == UiBlock("mermaid", "```mermaid\ngraph TD; A-->B\n```")
    assert ui.code("x = 1", language="python") == UiBlock("python", "```python\nx = 1\n```")
    assert ui.code("x") == UiBlock("code", "```\nx\n```")
    assert ui.json({"a": 1}) == UiBlock("json", '```json\n{\n  "a": 1\n}\n```')
    assert ui.markdown("**b**") == UiBlock("markdown", "**b**")
    assert ui.list(["a", 2]) == UiBlock("markdown", "- a\n- 2")
    assert ui.summary("3 found") == UiBlock("summary", "📊 **Summary**: 3 found")


def test_v13_a_table_takes_objects_or_rows() -> None:
    """The head is the keys in the order they appear, or the first row; cells keep within their column."""
    assert ui.table([{"id": 1, "n": "a|b"}, {"id": 2, "x": None}]).content == (
        "| id | n | x |\n| --- | --- | --- |\n| 1 | a\\|b |  |\n| 2 |  |  |"
    )
    assert ui.table([["ID"], ["line\nbreak"]]).content == "| ID |\n| --- |\n| line break |"
    assert ui.table([]).content == ""


def test_v12_hints_are_attributes_of_the_block() -> None:
    """Title, width and priority stand behind the type, escaped."""
    block = ui.markdown("x", title='A "b"', width="half", priority=2)
    assert block.text() == (
        '<ui_passthrough type="markdown" title="A &quot;b&quot;" width="half" priority="2">\nx\n</ui_passthrough>'
    )


def test_v13_a_fence_is_longer_than_any_in_it() -> None:
    """Code that holds a fence does not end its own."""
    assert ui.code("```\nx\n```").content.startswith("````\n")


@given(HOSTILE)
def test_w14_a_value_can_neither_close_its_block_nor_open_another(text: str) -> None:
    """In every kind of block there are exactly the tags that are ours."""
    blocks = Blocks((UiBlock("markdown", text, text),), (), (text,), (text,), (Suggestion(text, text),))
    for block in blocks.texts():
        body = block.split("\n", 1)[1].rpartition("\n")[0]
        assert without_tags(body) == body
        assert sum(block.count(f"<{tag}") + block.count(f"</{tag}") for tag in TAGS) == 2


@given(HOSTILE)
def test_w14_a_list_has_one_line_for_each_entry(text: str) -> None:
    """A line break cannot forge another rule."""
    (rules,) = Blocks(rules=(text, "mine")).texts()
    assert len(rules.splitlines()) == 4


def test_w14_json_says_the_same_without_tags() -> None:
    """In JSON the bracket is escaped, so that the value stays."""
    assert json_without_tags('["</domain_rules>", "<b>"]') == '["\\u003c/domain_rules>", "<b>"]'
