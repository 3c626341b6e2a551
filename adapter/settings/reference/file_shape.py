"""The shape of the file, read off the models: which section stands where, and what its keys are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from adapter.settings.root import Settings
from adapter.settings.values.section import ENTRY_TAGS, fields_by_key


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models inside an annotation: of a list, of an optional value, of a choice between several."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from sections_in(part)


def without_tags(location: Sequence[str | int]) -> tuple[str | int, ...]:
    """The location as the file has it: pydantic also names which of several models it tried."""
    steps: list[str | int] = []
    for step in location:
        chosen_by_type = len(steps) >= 2 and steps[-2] == "adapters" and isinstance(steps[-1], int)
        if step not in ENTRY_TAGS and not (
            chosen_by_type and step in ("upload_consumer", "artifact_producer")
        ):
            steps.append(step)
    return tuple(steps)


def keys_at(location: Sequence[str | int]) -> set[str]:
    """The keys that the section at a location knows, of all its variants when there are several."""
    sections: list[type[BaseModel]] = [Settings]
    named = False
    for step in location:
        if isinstance(step, int):
            continue
        if named:
            # The entry of a mapping: its name is the user's own.
            named = False
            continue
        known = [fields_by_key(section) for section in sections]
        fields = [keys[step] for keys in known if step in keys]
        sections = [found for field in fields for found in sections_in(field.annotation)]
        named = any(get_origin(field.annotation) is dict for field in fields)
    return {key for section in sections for key in fields_by_key(section)}


def nearest_key(location: Sequence[str | int]) -> str:
    """A sentence about an unknown key at the end of a location, with the known key it is most like."""
    *section, key = location
    known = sorted(keys_at(section))
    likely = get_close_matches(str(key), known, n=1, cutoff=0)
    return f"is not a known key; the nearest is {likely[0]}" if likely else "is not a known key"
