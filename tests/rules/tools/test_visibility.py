"""What clients may see of an upstream's tools."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.tool_definitions import Wrapped
from adapter.rules.text.expressions import ExpressionInvalid
from adapter.rules.text.unicode import visible
from adapter.rules.tools.definitions import prose
from adapter.rules.tools.visibility import (
    Descriptions,
    Disabled,
    Policies,
    Sanitization,
    ShapedDefinition,
    apply,
    cut,
    first_sentence,
    is_disabled,
)
from tests.cpu_time import at_most

OFF = Sanitization(mode="off")
PLAIN = b'{ "name":"x","title":"T", "description":"Says \\"hi\\".\\n","inputSchema":{"title":"S"},"n":1e400}'


def tool(**members: Any) -> bytes:
    return json.dumps({"name": "x", **members}, ensure_ascii=False).encode()


def seen(policies: Policies, definition: bytes) -> Any:
    shaped = apply(policies, "x", definition)
    return None if shaped.raw is None else json.loads(shaped.raw)


def test_untouched_tool_is_the_very_object_that_came() -> None:
    """Nothing is encoded anew where nothing changes."""
    for policies in (Policies(), Policies(sanitization=Sanitization("block")), Policies(sanitization=OFF)):
        shaped = apply(policies, "x", PLAIN)
        assert shaped == ShapedDefinition(PLAIN) and shaped.raw is PLAIN


def test_only_the_text_that_changes_is_written() -> None:
    """All other bytes stay: spaces, numbers, unknown members."""
    hostile = PLAIN.replace(b'"S"', '"S\u200bchema"'.encode())
    assert apply(Policies(), "x", hostile) == ShapedDefinition(
        PLAIN.replace(b'"S"', b'"Schema"'), frozenset({"inputSchema"})
    )


@pytest.mark.parametrize("escape", [False, True])
def test_hostile_text_is_cleaned_wherever_a_model_reads_it(escape: bool) -> None:
    """However it is spelled; what is data stays."""
    dirty, clean = "a\u202eb\U000e0041c\u200b\x1bd\x7f", "abcd"

    def definition(text: str) -> dict[str, Any]:
        return {
            "title": text,
            "description": text,
            "annotations": {"title": text},
            "inputSchema": {"properties": {"p": {"description": text, "default": dirty}}, "enum": [dirty]},
            "outputSchema": {"anyOf": [{"title": text}]},
            "_meta": {"description": dirty},
        }

    sent = json.dumps({"name": "x", **definition(dirty)}, ensure_ascii=escape).encode()
    shaped = apply(Policies(), "x", sent)
    assert shaped.raw is not None and json.loads(shaped.raw) == {"name": "x", **definition(clean)}
    assert shaped.changed == {"title", "description", "annotations", "inputSchema", "outputSchema"}
    assert apply(Policies(sanitization=Sanitization("block")), "x", sent) == ShapedDefinition(
        None, blocked=True
    )
    kept = apply(Policies(sanitization=OFF), "x", sent)
    assert kept.raw is sent


def test_each_cleaning_can_be_switched_off() -> None:
    """Form, invisible characters and lengths are separate."""
    sent = tool(title="ﬁ\u200b", description="x" * 20_000)
    cases = [
        (Sanitization(), "fi", "x" * 16_381 + "..."),
        (Sanitization(normalize_unicode=False), "ﬁ", "x" * 16_381 + "..."),
        (Sanitization(remove_invisible=False, max_description=None), "fi\u200b", "x" * 20_000),
    ]
    for sanitization, title, description in cases:
        shown = seen(Policies(sanitization=sanitization), sent)
        assert (shown["title"], shown["description"]) == (title, description)


def test_long_instructions_are_read_whole() -> None:
    """As real servers write them, several thousand characters are no reason to cut."""
    long = tool(title="t" * 256, description="d" * 16_384, inputSchema={"description": "s" * 8192})
    shaped = apply(Policies(), "x", long)
    assert shaped.raw is not None and shaped.raw is long
    longer = tool(title="t" * 257, description="d" * 16_385, inputSchema={"description": "s" * 8193})
    assert len(seen(Policies(), longer)["title"]) == 256
    assert len(seen(Policies(), longer)["description"]) == 16_384
    assert len(seen(Policies(), longer)["inputSchema"]["description"]) == 8192


def test_lengths_are_of_titles_descriptions_and_schema_texts() -> None:
    """In characters, the last of which say that there was more; a text just as long stays."""
    limits = Sanitization(max_title=4, max_description=6, max_schema_text=5)
    for text in ("a" * 9, 'a"' * 9, "ä" * 9, "a\\" * 9, "\n" + "a" * 9):
        schema = {"title": text, "description": text}
        shown = seen(
            Policies(sanitization=limits),
            tool(title=text, description=text, annotations={"title": text}, inputSchema=schema),
        )
        assert shown["title"] == shown["annotations"]["title"] == text[:1].rstrip() + "..."
        assert shown["description"] == text[:3] + "..."
        assert shown["inputSchema"] == {"title": text[:2] + "...", "description": text[:2] + "..."}
    exact = tool(title="aaaa", description='a"a\\a\n', inputSchema={"description": "aaaaa"})
    assert apply(Policies(sanitization=limits), "x", exact) == ShapedDefinition(exact)


@pytest.mark.parametrize("sanitization", [Sanitization(), OFF])
def test_description_policy(sanitization: Sanitization) -> None:
    """Truncate shortens descriptions, strip takes them away; titles stay, and neither counts as cleaning."""
    sent = tool(title="T" * 250, description="d" * 300, inputSchema={"description": "s" * 300, "title": "t"})
    truncate = Policies(sanitization, Descriptions("truncate", limit=10))
    strip = Policies(sanitization, Descriptions("strip"))
    assert seen(truncate, sent) == {
        "name": "x",
        "title": "T" * 250,
        "description": "d" * 7 + "...",
        "inputSchema": {"description": "s" * 7 + "...", "title": "t"},
    }
    assert seen(strip, sent) == {"name": "x", "title": "T" * 250, "inputSchema": {"title": "t"}}
    assert apply(strip, "x", sent).changed == frozenset()


def test_block_judges_what_came_not_what_the_policy_leaves() -> None:
    """A description that would be stripped is as hostile."""
    blocking = Policies(Sanitization("block"), Descriptions("strip"))
    assert apply(blocking, "x", tool(description="a\u200bb")) == ShapedDefinition(None, blocked=True)
    assert seen(blocking, tool(description="ab")) == {"name": "x"}


def test_wrapped_tools_are_shortened_then_say_how_files_reach_them() -> None:
    """The sentences are not cut off with the upstream's prose; other tools keep theirs."""
    rule = Wrapped("producer")
    policies = Policies(shorten=True, short_words=3, wrapped={"x": rule})
    sent = tool(description="Takes a very fine shot. Then more.", inputSchema={"description": "One. Two."})
    assert seen(policies, sent)["description"] == f"Takes a very...\n\n{rule.sentences}"
    assert seen(policies, sent)["inputSchema"] == {"description": "One. Two."}
    assert seen(replace(policies, descriptions=Descriptions("strip")), sent)["description"] == rule.sentences
    assert apply(policies, "y", sent) == ShapedDefinition(sent)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("One. Two.", "One."),
        ("Version 1.5 is out! Get it.", "Version 1.5 is out!"),
        ("No end at all", "No end at all"),
        ("  a b c d e f g.  ", "a b c d e f..."),
        ("", ""),
    ],
)
def test_first_sentence(text: str, short: str) -> None:
    """To its full stop, and of it at most so many words."""
    assert first_sentence(text, 6) == short


@given(st.text(), st.integers(1, 9))
def test_cut_keeps_to_its_limit(text: str, limit: int) -> None:
    """And keeps what is short enough."""
    assert len(cut(text, limit)) <= limit
    assert cut(text, len(text)) == cut(text, None) == text


DISABLED = Policies(disabled=Disabled.of(["delete_all", "admin_.*", "Exec", "a.c"]))


@pytest.mark.parametrize(
    "name",
    [
        "delete_all",
        "DELETE_ALL",
        "delete\u200b_all",
        "ｄelete_all",
        "admin_x",
        "Admin_X",
        "\u2060admin_",
        "exec",
        "a.c",
        "abc",
    ],
)
def test_disabled_tool_is_hidden_in_any_spelling(name: str) -> None:
    """By its name, by an expression, and where it merely reads like one of them."""
    assert is_disabled(DISABLED, name)
    assert apply(DISABLED, name, tool()) == ShapedDefinition(None)


@pytest.mark.parametrize("name", ["delete_all_2", "undelete_all", "x_admin_x", "", "execute"])
def test_expressions_match_whole_names(name: str) -> None:
    """Nothing is hidden that only holds a disabled name."""
    assert not is_disabled(DISABLED, name)


def test_nothing_disabled_hides_nothing() -> None:
    """Not even odd names; a bad expression is an error, a name that nobody can judge is hidden."""
    for odd in ("x" * 10**6, "x\0"):
        assert not is_disabled(Policies(), odd)
        assert is_disabled(Policies(disabled=Disabled.of(["y"])), odd)
        assert is_disabled(DISABLED, odd)
    with pytest.raises(ExpressionInvalid):
        Disabled.of(["("])


words = st.text(st.characters(exclude_categories=[]), max_size=12) | st.sampled_from(
    ["plain words", "e\u0301", "\u200b", "line\nline", 'a "quote"', "back\\slash", "ab. " * 700]
)


@given(words, words, words, st.booleans())
def test_sanitized_texts_are_clean(title: str, description: str, inner: str, ascii_only: bool) -> None:
    """In form NFKC, without what nobody sees; and the shortcut agrees with looking at each text."""
    value = {"name": "x", "title": title, "description": description, "inputSchema": {"title": inner}}
    sent = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "replace")
    shaped = apply(Policies(), "x", sent)
    assert shaped.raw is not None
    texts = [piece.text(shaped.raw) for piece in prose(shaped.raw)]
    for text in texts:
        assert unicodedata.is_normalized("NFKC", text)
        bare = text.replace("\ufe0e", "").replace("\ufe0f", "")
        assert visible(bare) == bare
    rule = Policies().sanitization
    assert texts == [rule.clean(piece, piece.text(sent)) for piece in prose(sent)]
    assert (shaped.raw is sent) == (not shaped.changed)


def typical(number: int) -> bytes:
    properties = {
        f"argument_{place}": {"type": "string", "description": "What to do with it, and how", "default": None}
        for place in range(6)
    }
    return tool(
        title=f"Tool {number}",
        description="Does something with a file, and says so at some length. " * 5,
        inputSchema={"type": "object", "properties": properties, "required": ["argument_0"]},
        annotations={"readOnlyHint": True},
    )


@pytest.mark.parametrize("descriptions", [Descriptions(), Descriptions("strip"), Descriptions("truncate")])
def test_five_hundred_tools_cost_little(descriptions: Descriptions) -> None:
    """All policies, in time that leaves room for a slow machine."""
    policies = Policies(descriptions=descriptions, disabled=Disabled.of(["admin_.*", "delete_all"]))
    definitions = [typical(number) for number in range(500)]
    with at_most(0.5):
        for number, definition in enumerate(definitions):
            apply(policies, f"tool_{number}", definition)


@pytest.mark.parametrize("unit", ["x", "\u202e", "e\u0301", "\u0301\u0316", "ﷺ", '"', "\x1b", ". "])
def test_a_description_of_a_megabyte_costs_little(unit: str) -> None:
    """Whatever it is made of."""
    huge = tool(description=unit * (10**6 // len(unit)))
    policies = Policies(shorten=True, wrapped={"x": Wrapped("producer")})
    with at_most(5):
        shaped = apply(policies, "x", huge)
    assert shaped.raw is not None and len(shaped.raw) < 60_000


@pytest.mark.parametrize(
    ("description", "key"),
    [
        ("é" * 6, "description"),
        ('"' * 6, "description"),
        ("\\" * 6, "description"),
        ("long" * 2, "descr\\u0069ption"),
    ],
)
@pytest.mark.parametrize("limit", [5, 6, 8])
def test_looking_for_long_descriptions_at_once_misses_none(description: str, key: str, limit: int) -> None:
    """Whatever its bytes or its key's spelling, a description is cut exactly when it has more characters."""
    quoted = json.dumps(description, ensure_ascii=False)
    definition = f'{{"name":"a","{key}":{quoted},"inputSchema":{{"{key}":{quoted}}}}}'.encode()
    policies = Policies(Sanitization(mode="off"), Descriptions("truncate", limit))
    shaped = apply(policies, "a", definition)
    assert shaped.raw is not None
    said = json.loads(shaped.raw)
    for place in (said, said["inputSchema"]):
        assert (place["description"] == description) is (len(description) <= limit)
