"""``mcp-adapter doctor``: the adapter, its machine and its servers looked at as a client would meet them.

Here is what a check finds. servers.py looks at each server, also by a file that it moves through a tool; examination.py
looks at storage, port and clock, and runs all checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from adapter.rules.text.unicode import hanging

Status = Literal["right", "warning", "wrong"]

_MARKS = {"right": "ok     ", "warning": "warning", "wrong": "WRONG  "}


@dataclass(frozen=True)
class Finding:
    """``subject`` is a word or two, ``sentence`` is what was found, ``advice`` what to do; empty where all is right."""

    subject: str
    status: Status
    sentence: str
    advice: str = ""

    def __str__(self) -> str:
        advice = f" {self.advice}" if self.advice else ""
        # Servers say some of it.
        return hanging(f"{_MARKS[self.status]}  {self.subject}: {self.sentence}{advice}")


def right(subject: str, sentence: str) -> Finding:
    return Finding(subject, "right", sentence)


def warning(subject: str, sentence: str, advice: str) -> Finding:
    return Finding(subject, "warning", sentence, advice)


def wrong(subject: str, sentence: str, advice: str) -> Finding:
    return Finding(subject, "wrong", sentence, advice)
