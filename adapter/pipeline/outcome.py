"""The outcome of a call: the result as it will be sent, and the value it was written from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from adapter.rules.presenters.blocks import NO_BLOCKS, Blocks
from adapter.rules.results.outcomes import NOTHING, Result, payload


class Unread:
    """Data that is ``made`` anew for everybody who wants to see it, and most calls end without anybody who does."""

    __slots__ = ("made",)

    def __init__(self, made: Callable[[], Any]) -> None:
        self.made = made


@dataclass(frozen=True, slots=True)
class Outcome:
    """``result`` holds the members of a CallToolResult, those of an upstream as they came, and nobody changes it.

    ``data`` is the value that the content was written from, NOTHING where there is none or nobody knows; it may be
    Unread, so ask for ``payload``. ``blocks`` are those of the content that are not data. ``final``: a stage answered
    in the tool's stead, so that what would be made of the tool's data is not made of this.
    """

    result: Mapping[str, Any]
    data: Any = NOTHING
    blocks: Blocks = NO_BLOCKS
    final: bool = False

    @classmethod
    def of(cls, result: Result, meta: Mapping[str, Any] | None = None) -> Outcome:
        """The outcome of what a tool's code returned."""
        wire = result.wire()
        if meta:
            wire["_meta"] = dict(meta)
        return cls(wire, result.data, result.blocks)

    def as_result(self) -> dict[str, Any]:
        """The members of the JSON-RPC result."""
        return dict(self.result)

    @property
    def is_error(self) -> bool:
        return self.result.get("isError") is True

    @property
    def succeeded(self) -> bool:
        """Tell whether there is a complete result of a call that did not fail; a task or a question is not one."""
        complete = self.result.get("resultType") in (None, "complete")
        task = isinstance(self.result.get("task"), dict) and "content" not in self.result
        return complete and not task and not self.is_error

    @property
    def shapable(self) -> bool:
        """Tell whether there is data here for mappers, presenters and all else that works on a tool's data."""
        return self.succeeded and not self.final

    @property
    def payload(self) -> Any:
        """The data that mappers and presenters see of the outcome."""
        if self.data is NOTHING:
            return payload(self.result)
        return self.data.made() if isinstance(self.data, Unread) else self.data

    def written(self, result: Result) -> Outcome:
        """The same call with content of its data written anew; other members of the result stay."""
        kept = {
            key: value
            for key, value in self.result.items()
            if key not in ("content", "structuredContent", "isError")
        }
        return Outcome({**kept, **result.wire()}, result.data, result.blocks)

    def with_content(self, content: list[Any]) -> Outcome:
        """The same with other content."""
        return replace(self, result={**self.result, "content": content})

    def with_meta(self, key: str, value: Any) -> Outcome:
        """The same with one more member of ``_meta``."""
        meta = self.result.get("_meta")
        known = meta if isinstance(meta, Mapping) else {}
        return replace(self, result={**self.result, "_meta": {**known, key: value}})
