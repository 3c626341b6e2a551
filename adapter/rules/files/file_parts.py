"""Parts of files that are read in pieces: whole characters, whole lines, a value of a JSON document. Pure."""

from __future__ import annotations

import codecs
import re
from itertools import islice

from adapter.wire.scan import OPEN_ARRAY, OPEN_OBJECT, byte, end_of_value, items, members, skip_space
from adapter.wire.spans import Span

MOST_STEPS = 32
"""Steps of a JSON pointer: each looks through all that is below the one before."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_LONGEST_CHARACTER = 4


class NothingThere(Exception):
    """A JSON pointer leads nowhere; the text says where it ends."""


def characters(data: bytes, skip: int, *, at_end: bool) -> tuple[int, str] | None:
    """The text of some bytes of a file, and where in them it begins; None where they are no UTF-8.

    The first ``skip`` bytes are there to find where the character begins that the next byte belongs to. The last
    character is left out where its end is missing, unless the file is ``at_end``.
    """
    start = skip
    while (
        start and start < len(data) and data[start] & 0xC0 == 0x80 and skip - start < _LONGEST_CHARACTER - 1
    ):
        start -= 1
    try:
        return start, codecs.getincrementaldecoder("utf-8")().decode(data[start:], at_end)
    except UnicodeDecodeError:
        return None


def pointed(doc: bytes, pointer: str) -> Span:
    """The place of the value that a JSON pointer (RFC 6901) leads to. Of members with one name the last counts.

    Raises NothingThere, and ValueError for what is no JSON.
    """
    start = skip_space(doc, 0)
    span = start, end_of_value(doc, start)
    if not pointer:
        return span
    steps = pointer.split("/", MOST_STEPS + 1)
    if steps[0] or len(steps) > MOST_STEPS + 1:
        raise NothingThere(
            f'json_pointer is empty, or begins with "/" and has at most {MOST_STEPS} steps, as in /items/0/name.'
        )
    for place, step in enumerate(steps[1:], 2):
        found = _child(doc, span[0], step.replace("~1", "/").replace("~0", "~"))
        if found is None:
            raise NothingThere(f"There is nothing at {'/'.join(steps[:place])} in this document.")
        span = found
    return span


def _child(doc: bytes, start: int, step: str) -> Span | None:
    opening = byte(doc, start)
    if opening == OPEN_OBJECT:
        found = None
        for each in members(doc, start):
            if each.key == step:
                found = each.value_start, each.value_end
        return found
    if opening == OPEN_ARRAY and _INDEX.fullmatch(step):
        return next(islice(items(doc, start), int(step), None), None)
    return None
