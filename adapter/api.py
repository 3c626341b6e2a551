"""What a script of a hosted tool imports: how it answers, fails and tells of its progress."""

from __future__ import annotations

from adapter.rules import ui
from adapter.rules.outcomes import ToolUserError, error, progress, required, response, success, tool_error

__all__ = (
    "ToolUserError",
    "error",
    "progress",
    "required",
    "response",
    "success",
    "tool_error",
    "ui",
)
