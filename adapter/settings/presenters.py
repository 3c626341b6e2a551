"""``presenters``: what becomes of the data of tools before a model sees it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Tag, model_validator

from adapter.settings.section import (
    AS_SECTION,
    AS_TEXT,
    ByKindOfEntry,
    Count,
    Entries,
    Line,
    OneIsAList,
    OptionalText,
    Section,
    Spelled,
    Text,
)

_CODE = re.compile(r".+\.py#[^\W\d]\w*|\S+\.py")


def names_code(text: str) -> bool:
    """Tell whether a text names a function, as ``file.py#function`` or ``file.py``, instead of being said as it is."""
    return _CODE.fullmatch(text) is not None


def _code(text: str) -> str:
    if not names_code(text):
        raise ValueError("must be a function as file.py#function, or a section with keys of its own")
    return text


Function = Annotated[Line, AfterValidator(_code), Tag(AS_TEXT)]


class RedactionSettings(Section):
    """Values that nobody may read."""

    paths: Entries = Field(description="Where they are, as `ssn`, `*.ssn`, `orders[*].card`.")
    censor: Line = Field(
        default="[REDACTED]",
        description="What stands in their place, or a function of them as `file.py#function`.",
    )


class SuggestionSettings(Section):
    """A tool worth calling next."""

    when: OptionalText = Field(
        default=None, description="Condition on the data, such as `status == 'overdue'`; null: always."
    )
    tool: Text = Field(description="Name of the tool.")
    reason: Text = Field(description="Why it is worth calling.")


class InterfaceBlock(Section):
    """Something to show as it is."""

    type: Text = Field(description="Kind of the content, such as `markdown`.")
    content: Text = Field(description="What is shown.")
    title: OptionalText = Field(default=None, description="Heading.")
    width: OptionalText = Field(default=None, description="How wide it should be, in words of who shows it.")
    priority: float | None = Field(default=None, description="What comes first where there is little room.")


Suggestions = Annotated[
    list[Annotated[Function | Annotated[SuggestionSettings, Tag(AS_SECTION)], ByKindOfEntry]],
    OneIsAList,
    Spelled("list of `file.py#function`"),
]
InterfaceBlocks = Annotated[
    list[Annotated[Function | Annotated[InterfaceBlock, Tag(AS_SECTION)], ByKindOfEntry]],
    OneIsAList,
    Spelled("list of `file.py#function`"),
]
Rules = Annotated[list[Line], OneIsAList, Spelled("list of text and `file.py#function`")]


class PresenterSettings(Section):
    """What becomes of a tool's data; functions are called with the redacted data and the context."""

    # BaseModel has a method of the name that the file uses.
    shape: Annotated[dict[str, Any] | None, Spelled("mapping of names to types, or null")] = Field(
        default=None,
        alias="schema",
        description="Members that are shown, with `string`, `int`, `float`, `bool`, `any`, `list[T]` or a mapping; "
        "`?` is optional.",
    )
    json_schema: Annotated[dict[str, Any] | None, Spelled("JSON Schema, or null")] = Field(
        default=None, description="The same in JSON Schema."
    )
    limit: Count | None = Field(
        default=None, description="Most items of a list that are shown; null shows all."
    )
    redact: RedactionSettings | None = Field(default=None, description="Values that nobody may read.")
    rules: Rules = Field(default_factory=list, description="What a model has to heed with such data.")
    ui: InterfaceBlocks = Field(default_factory=list, description="Blocks to show, for single items.")
    suggest: Suggestions = Field(
        default_factory=list, description="Tools to call next, by a single item or the first of a list."
    )
    embed: dict[str, Text] = Field(
        default_factory=dict, description="Members with presenters of their own, by name."
    )
    collection_rules: Rules = Field(default_factory=list, description="Rules added for a list.")
    collection_ui: InterfaceBlocks = Field(default_factory=list, description="Blocks to show for a list.")
    collection_suggest: Suggestions = Field(
        default_factory=list, description="Tools to call next, for a list, in place of those of `suggest`."
    )
    select: bool = Field(
        default=False, description="Lets callers name in `_select` the members that they want to see."
    )
    format: Literal["json", "toon"] = Field(default="json", description="How the data is written.")

    @model_validator(mode="after")
    def _has_one_schema(self) -> PresenterSettings:
        if self.shape is not None and self.json_schema is not None:
            raise ValueError("has both schema and json_schema: one says what is shown")
        return self
