"""The data of the scripted console, kept in ``console/*.yaml``, and the tools of its servers."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

HOSTILE_TEXT = (
    '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>\'"><svg onload=window.harmed=1>'
)
"""Markup that would run if any string of a tool became markup; ``window.harmed`` would tell."""

MANY = 5000


def data(name: str, **marks: str) -> Any:
    """A file of data, in whose texts ``now-95`` is the time 95 seconds ago, ``{hostile}`` the markup, and ``{NAME}``
    what ``marks`` say.
    """
    return _filled(_read(name), {"hostile": HOSTILE_TEXT, **marks})


@cache
def _read(name: str) -> Any:
    return yaml.safe_load((Path(__file__).parent / "console" / f"{name}.yaml").read_text())


def _filled(value: Any, marks: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_filled(each, marks) for each in value]
    if isinstance(value, dict):
        return {_marked(key, marks): _filled(each, marks) for key, each in value.items()}
    if isinstance(value, str) and (moment := re.fullmatch(r"now([+-]\d+)?", value)):
        return time.time() + int(moment[1] or 0)
    return _marked(value, marks) if isinstance(value, str) else value


def _marked(text: str, marks: Mapping[str, str]) -> str:
    for name, stands_for in marks.items():
        text = text.replace(f"{{{name}}}", stands_for)
    return text


TOOLS: dict[str, list[Json]] = {
    **data("tools"),
    "vast": [
        {
            "name": f"tool_{number:04d}",
            "description": f"The tool with the number {number}.",
            "inputSchema": {"type": "object"},
        }
        for number in range(MANY)
    ],
}
