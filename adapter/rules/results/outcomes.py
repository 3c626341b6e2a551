"""The values that a tool's code may return, and the result of the call that is made of them. Pure.

A plain value is compact JSON. ``success`` and ``response`` write for a model: texts as they are, objects indented,
nothing at all as ``OK``. The values that they are made of are kept as ``data``, so that no result can get around
a presenter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from adapter.errors import BadJson
from adapter.rules.results.blocks import NO_BLOCKS, Blocks, Suggestion, UiBlock, attribute, element_text
from adapter.rules.text.json_values import compact, indented, require_size
from adapter.wire.envelope import parse

ERROR_KEY = "adapter/error"
"""The member of a result's ``_meta`` that names the stage that failed and the code, for programs."""

TRACE_KEY = "_trace_id"
"""The member of a result's ``_meta`` with its trace, for callers over HTTP."""

Severity = Literal["warning", "error", "critical"]

RETRY = "This may be a transient error. Retry the same call with identical parameters."
FIX = "Fix the fields above and call the tool again. Do not explain the error."
BROKEN = "The tool itself is at fault: the same call will fail again. Report this to the user."


def tool_error_text(
    message: str,
    *,
    code: str | None = None,
    severity: Severity | None = None,
    recovery: str | None = None,
    actions: Iterable[str] = (),
    details: Mapping[str, Any] | None = None,
    retry_after: float | None = None,
) -> str:
    """The element ``tool_error``; parts that are not given are left out. ``retry_after`` is in seconds."""
    given = {"code": code, "severity": severity}
    attributes = "".join(
        f' {name}="{attribute(value)}"' for name, value in given.items() if value is not None
    )
    lines = [f"<tool_error{attributes}>", f"<message>{element_text(message)}</message>"]
    if recovery:
        lines.append(f"<recovery>{element_text(recovery)}</recovery>")
    listed = [f"  <action>{element_text(action)}</action>" for action in actions]
    if listed:
        lines += ("<available_actions>", *listed, "</available_actions>")
    if details:
        lines.append("<details>")
        for key, value in details.items():
            lines.append(f'  <detail key="{attribute(str(key))}">{element_text(str(value))}</detail>')
        lines.append("</details>")
    if retry_after is not None:
        lines.append(f"<retry_after>{spelled(retry_after)} seconds</retry_after>")
    return "\n".join((*lines, "</tool_error>"))


def validation_error_text(action: str, fields: Iterable[tuple[str, str]]) -> str:
    """The element ``validation_error``: each field, by its path, with what is wrong with it."""
    return "\n".join(
        (
            f'<validation_error action="{attribute(action)}">',
            *(f'<field name="{attribute(name)}">{element_text(text)}</field>' for name, text in fields),
            f"<recovery>{element_text(FIX)}</recovery>",
            "</validation_error>",
        )
    )


def spelled(number: float) -> str:
    """Return a number without a fraction of zero, and in digits only if it is whole."""
    return str(int(number)) if number == int(number) else str(round(number, 3))


class _Nothing(Enum):
    NOTHING = "nothing"

    def __repr__(self) -> str:
        return self.value


NOTHING: Final = _Nothing.NOTHING
"""The data of a result that has none to present: that of a failure, or a warning."""


class ToolUserError(Exception):
    """Raised by a tool's code to fail with a message for the caller, which is passed on unchanged."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call. ``content`` holds MCP's content blocks, ``structured`` its structuredContent.

    ``data`` is the value that the content was written from. ``blocks`` are those of the content that are not data.
    """

    content: list[dict[str, Any]]
    is_error: bool = False
    structured: dict[str, Any] | None = None
    data: Any = NOTHING
    blocks: Blocks = NO_BLOCKS

    def wire(self) -> dict[str, Any]:
        """As the result of ``tools/call``."""
        structured = {} if self.structured is None else {"structuredContent": self.structured}
        return {"content": self.content, **structured, "isError": self.is_error}


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a call, yielded by handlers that are generators."""

    percent: float
    message: str | None = None


def progress(percent: float, message: str | None = None) -> Progress:
    """Return the value that a generator yields to say how far it is, from 0 to 100.

    Raises ValueError for any other number.
    """
    if not math.isfinite(percent) or not 0 <= percent <= 100:
        raise ValueError(f"Progress must be a number from 0 to 100, not {percent!r}.")
    return Progress(percent, message)


# --- success --------------------------------------------------------------------------------------------------


def success(data: Any = None) -> Result:
    """A result written for a model. Raises NotJson."""
    return response(data).build()


class Response:
    """Builds a result of several blocks: the data first, then the others in a fixed order."""

    def __init__(self, data: Any = None) -> None:
        self._data = data
        self._blocks = NO_BLOCKS

    def __repr__(self) -> str:
        return f"<Response of {type(self._data).__name__}: {sum(1 for _ in self._blocks.texts())} blocks>"

    def ui_block(self, block: UiBlock) -> Response:
        """Add an interface block."""
        return self._with(Blocks(ui=(block,)))

    def llm_hint(self, hint: str) -> Response:
        """Add a directive for the model about this result."""
        return self._with(Blocks(hints=(hint,)))

    def system_rules(self, *rules: str | Iterable[str]) -> Response:
        """Add rules for the model about results of this kind, one by one or as a list."""
        flat = [each for rule in rules for each in ((rule,) if isinstance(rule, str) else rule)]
        return self._with(Blocks(rules=tuple(flat)))

    def suggest(self, tool: str, reason: str) -> Response:
        """Suggest a tool to call next."""
        return self._with(Blocks(suggestions=(Suggestion(tool, reason),)))

    def build(self) -> Result:
        """The result. Raises NotJson."""
        require_size(self._data)
        texts = (spoken(self._data), *self._blocks.texts())
        return Result([text_block(text) for text in texts], data=self._data, blocks=self._blocks)

    def _with(self, blocks: Blocks) -> Response:
        self._blocks += blocks
        return self


def response(data: Any = None) -> Response:
    """Begin a result of several blocks; the adapter also builds one that is returned unbuilt."""
    return Response(data)


# --- failure --------------------------------------------------------------------------------------------------


def error(message: str, code: str | None = None) -> Result:
    """Return a failure with one sentence."""
    return failed(tool_error_text(message, code=code))


def tool_error(
    code: str,
    *,
    message: str | None = None,
    suggestion: str | None = None,
    available_actions: Iterable[str] = (),
    severity: Severity = "error",
    details: Mapping[str, Any] | None = None,
    retry_after: float | None = None,
) -> Result:
    """A failure that says how to go on; without a message its code is one. A warning is no failure.

    ``retry_after`` is in seconds; what is not a positive number of them is left out.
    """
    sentence = code if message is None else message
    if retry_after is not None and not (math.isfinite(retry_after) and retry_after > 0):
        retry_after = None
    text = tool_error_text(
        sentence,
        code=code,
        severity=severity,
        recovery=suggestion,
        actions=available_actions,
        details=details,
        retry_after=retry_after,
    )
    return failed(text, is_error=severity != "warning")


def required(field: str) -> Result:
    """The failure of a call in which a field is missing that is not always required."""
    message = f'Required field "{field}" is missing.'
    recovery = f'Provide the "{field}" parameter and retry.'
    text = tool_error_text(message, code="MISSING_REQUIRED_FIELD", recovery=recovery)
    return failed(text)


# --- any value ------------------------------------------------------------------------------------------------


def as_result(value: Any, *, structured: bool = False) -> Result:
    """The result that a returned value stands for: a Result itself, an unbuilt response built, anything else as data.

    With ``structured`` an object is the structured content too. Raises NotJson, also for a value that is too large.
    """
    if isinstance(value, Response):
        value = value.build()
    if isinstance(value, Result):
        return value
    require_size(value)
    text = compact(value)
    # From the text, so that both say the same and neither shares anything with the tool's own objects.
    members = parse(text.encode()) if structured and isinstance(value, Mapping) else None
    return Result([text_block(text)], structured=members, data=value)


def payload(result: Mapping[str, Any]) -> Any:
    """The value that mappers and presenters see of a result of ``tools/call`` that was not made here.

    It is the structuredContent, else the value of a single text block that is JSON, else the content.
    """
    structured = result.get("structuredContent")
    if structured is not None:
        return structured
    content = result.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
        text = content[0].get("text")
        if content[0].get("type") == "text" and isinstance(text, str):
            try:
                return parse(text.encode("utf-8", "surrogatepass"))
            except BadJson:
                return content
    return content


def as_rows(value: Any) -> list[Any]:
    """The value as a list of objects, for tools that ask for rows: nothing is none, what is no object is the
    ``value`` of one.
    """
    if value is None:
        return []
    items = value if isinstance(value, list | tuple) else [value]
    return [item if isinstance(item, Mapping) else {"value": item} for item in items]


def spoken(data: Any) -> str:
    """Data as a model reads it: a text as it is, nothing as ``OK``, all else as indented JSON. Raises NotJson."""
    if data is None or data == "":
        return "OK"
    return data if isinstance(data, str) else indented(data)


def text_block(text: str) -> dict[str, Any]:
    """MCP's content block of a text."""
    return {"type": "text", "text": text}


def failed(text: str, *, is_error: bool = True) -> Result:
    """The result of a call that failed, with a ``text`` in its envelope."""
    return Result([text_block(text)], is_error)
