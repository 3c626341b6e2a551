"""The elements in which a failure is told to a model: what went wrong, and what to do about it. Pure.

The recovery goes by the kind of failure: what cannot succeed unchanged is never said to be worth repeating.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from adapter.rules.presenters.blocks import attribute, element_text

Severity = Literal["warning", "error", "critical"]

RETRY = "This may be a transient error. Retry the same call with identical parameters."
FIX = "Fix the fields above and call the tool again. Do not explain the error."
FORBIDDEN = "Do not retry with the same credentials. Ask the user for access to this tool."
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
    """A number without a fraction that says nothing, and in digits only where it is whole."""
    return str(int(number)) if number == int(number) else str(round(number, 3))
