"""In which members two JSON values differ, each by its path. Pure; linear in the values, at any depth."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, NamedTuple

from adapter.rules.text.canonical_json import canonical, scalar
from adapter.rules.text.unicode import shown

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_$-]{1,64}")
_LONGEST_KEY = 64
_LONGEST_PATH = 160


class Absent(Enum):
    ABSENT = "absent"


ABSENT: Literal[Absent.ABSENT] = Absent.ABSENT
"""What a member is that is not there."""


class Difference(NamedTuple):
    """``path`` is bounded and safe to show: ``inputSchema.properties.path.type``; one too deep ends in ``…``."""

    path: str
    old: Any
    new: Any


def differences(old: Any, new: Any) -> Iterator[Difference]:
    """Yield the places where two values differ in canonical form, sorted by their keys.

    A list differs as a whole if one of its items is no object or list, or if it became longer or shorter.
    """
    todo = [Difference("", old, new)]
    while todo:
        here = todo.pop()
        if isinstance(here.old, dict) and isinstance(here.new, dict):
            keys = sorted(here.old.keys() | here.new.keys(), reverse=True)
            todo += (
                Difference(_member(here.path, key), here.old.get(key, ABSENT), here.new.get(key, ABSENT))
                for key in keys
            )
        elif isinstance(here.old, list) and isinstance(here.new, list):
            if len(here.old) == len(here.new) and all(map(_holds_others, (*here.old, *here.new))):
                pairs = list(enumerate(zip(here.old, here.new, strict=True)))
                todo += (
                    Difference(_longer(here.path, f"[{place}]"), *pair) for place, pair in reversed(pairs)
                )
            elif canonical(here.old) != canonical(here.new):
                yield here
        elif _differ(here.old, here.new):
            yield here


def _differ(old: Any, new: Any) -> bool:
    if old is ABSENT or new is ABSENT or _holds_others(old) or _holds_others(new):
        return old is not new
    return scalar(old) != scalar(new)


def _holds_others(value: Any) -> bool:
    return isinstance(value, dict | list)


def _member(path: str, key: str) -> str:
    if _PLAIN_KEY.fullmatch(key):
        return _longer(path, f".{key}" if path else key)
    return _longer(path, f"[{shown(json.dumps(key[: _LONGEST_KEY + 1], ensure_ascii=False), _LONGEST_KEY)}]")


def _longer(path: str, step: str) -> str:
    if path.endswith("…"):
        return path
    return path + step if len(path) + len(step) <= _LONGEST_PATH else path + "…"
