"""The work that a schema may make of a value, known before anybody does it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, Final
from urllib.parse import unquote

from adapter.rules.text.events import shortened

DEEPEST = 100
"""Schemas within schemas, as they are written; the library takes no more levels of JSON than 255."""

PARTS = 200_000
"""Parts of a schema that are looked at for anybody: about a second's."""

STEPS = 2_000_000
"""Steps of one check."""

LONGEST_URI = 4_096
"""Characters of a name of a schema, and of a reference."""

LONGEST_NAME = 4_096
"""Characters of the name of a member: each mistake within it is told with its whole path."""

_LONGEST_ERROR = 300
_ODD_LEVELS: Final = 200
_PATTERN: Final = 50
"""Parts that a pattern counts for, because it is compiled."""

_ALIKE: Final = ("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")
_SELF: Final = ("not", "if", "then", "else", "extends")
_EACH: Final = (
    *("items", "additionalItems", "contains", "unevaluatedItems", "propertyNames"),
    *("additionalProperties", "unevaluatedProperties"),
)
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_READING: Final = frozenset(("pattern", "patternProperties", "format"))
_NAMING: Final = ("$id", "id", "$anchor", "$dynamicAnchor")


class SchemaInvalid(ValueError):
    """A schema that nothing can be checked by; ``str`` is a sentence that says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(shortened(sentence.partition("\n")[0], _LONGEST_ERROR))


class SchemaTooLarge(Exception):
    """A schema has more parts, or larger patterns, than are looked at here."""


class OutOfSteps(Exception):
    """A check may take more steps than it is allowed."""


class Cost:
    """The cost of a schema of at most ``parts`` parts. Raises SchemaInvalid and SchemaTooLarge."""

    def __init__(self, schema: Mapping[str, Any], parts: int) -> None:
        self._schema = schema
        self._left = parts
        self._budget = parts * 4
        self._reads = False
        self._addresses = 0
        # By what references say of them.
        self._named: dict[str, Any] = {}
        self._known: dict[tuple[int, int], int | None] = {}
        self._survey()

    def steps(self, value: Any, most: int) -> int:
        """The steps that a check takes at worst: schemas that apply to a value, times what there is to look at.

        Raises OutOfSteps for more than ``most``.
        """
        # A keyword may look at everything within its value, and a mistake has a copy of it.
        levels = self._levels(value, most)
        within = reversed(list(accumulate(reversed(levels))))
        try:
            steps = sum(self._applied(self._schema, depth) * size for depth, size in enumerate(within))
        except RecursionError:
            raise OutOfSteps from None
        if steps > most:
            raise OutOfSteps
        return steps

    def _survey(self) -> None:
        waiting: list[tuple[Any, int]] = [(self._schema, 0)]
        while waiting:
            one, depth = waiting.pop()
            if depth > 2 * DEEPEST:
                raise SchemaInvalid("The schema is nested too deeply.")
            self._left -= 1 + (len(one) >> 8 if isinstance(one, str) else 0)
            if self._left < (len(one) if isinstance(one, dict | list) else 0):
                raise SchemaTooLarge
            if isinstance(one, dict):
                self._note(one)
                waiting += ((part, depth + 1) for part in one.values())
            elif isinstance(one, list):
                waiting += ((part, depth + 1) for part in one)

    def _note(self, part: Mapping[str, Any]) -> None:
        self._reads = self._reads or not _READING.isdisjoint(part)
        if max(map(len, part), default=0) > LONGEST_NAME:
            raise SchemaTooLarge
        for keyword in ("pattern", "patternProperties"):
            patterns = part.get(keyword, ())
            self._left -= _PATTERN * (len(patterns) if isinstance(patterns, dict) else 1 if patterns else 0)
        for keyword in ("$id", "id", *_REFERENCES):
            if isinstance(name := part.get(keyword), str):
                if len(name) > LONGEST_URI:
                    raise SchemaInvalid(f"A URI of the schema is longer than {LONGEST_URI} characters.")
                # The library writes each down whole, with those it is relative to.
                self._left -= (self._addresses + len(name)) >> 6
                self._addresses += len(name) if "id" in keyword else 0
        for keyword in _NAMING:
            if isinstance(name := part.get(keyword), str):
                self._named.setdefault(name if "id" in keyword else f"#{name}", part)

    def _levels(self, value: Any, most: int) -> list[int]:
        """The number of values at each depth; a text counts for its length."""
        levels: list[int] = []
        total, width = 0, 0 if self._reads else 8
        waiting: list[Any] = [value]
        while waiting:
            size = len(waiting)
            below: list[Any] = []
            for one in waiting:
                if isinstance(one, str):
                    size += len(one) >> width
                elif isinstance(one, dict | list):
                    if len(one) > most:
                        raise OutOfSteps
                    below += one.values() if isinstance(one, dict) else one
                    if isinstance(one, dict) and one:
                        if max(map(len, one)) > LONGEST_NAME:
                            raise OutOfSteps
                        size += sum(map(len, one)) >> width
                elif isinstance(one, int):
                    size += one.bit_length() >> 6
                if len(below) > most:
                    raise OutOfSteps
            total += size
            if total > most or len(levels) > _ODD_LEVELS:
                raise OutOfSteps
            levels.append(size)
            waiting = below
        return levels

    def _applied(self, schema: Any, depth: int) -> int:
        """How much of a schema applies to one value so far within the one that the schema is for."""
        if not isinstance(schema, dict):
            return depth == 0
        key = (id(schema), depth)
        if (found := self._known.get(key, -1)) != -1:
            if found is None:
                # It refers to itself for the same value.
                raise OutOfSteps
            return found
        self._budget -= 1 + (len(schema) >> 3)
        if self._budget < 0:
            raise OutOfSteps
        self._known[key] = None
        found = _own(schema) if depth == 0 else 0
        twice = 2 if "unevaluatedProperties" in schema or "unevaluatedItems" in schema else 1
        found += twice * sum(self._applied(part, depth) for part in self._alike(schema))
        if depth:
            found += twice * sum(self._applied(part, depth - 1) for part in _each(schema))
            found += max((self._applied(part, depth - 1) for part in _one_of(schema)), default=0)
        self._known[key] = found
        return found

    def _alike(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """The schemas that apply to the same value."""
        for keyword in _ALIKE:
            parts = schema.get(keyword)
            yield from parts if isinstance(parts, list) else parts.values() if isinstance(parts, dict) else ()
        yield from (schema[keyword] for keyword in _SELF if keyword in schema)
        for keyword in _REFERENCES:
            if isinstance(reference := schema.get(keyword), str):
                yield self._referred(reference)

    def _referred(self, reference: str) -> Any:
        if reference in self._named:
            return self._named[reference]
        target: Any = self._schema
        if not reference.startswith("#") or len(self._named) > 1:
            # Only the library knows where that leads.
            raise OutOfSteps
        try:
            for part in unquote(reference[1:]).split("/")[1:]:
                name = part.replace("~1", "/").replace("~0", "~")
                target = target[int(name) if isinstance(target, list) else name]
        except (LookupError, TypeError, ValueError):
            raise OutOfSteps from None
        return target


def _own(schema: Mapping[str, Any]) -> int:
    """The steps of a schema's own keywords at one value."""
    steps = len(schema)
    for keyword, value in schema.items():
        if isinstance(value, list | dict):
            steps += len(value) >> 2
        if keyword in ("const", "enum"):
            steps += weight(value)
    return steps


def _each(schema: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in _EACH:
        if keyword in schema and not isinstance(schema[keyword], list):
            yield schema[keyword]
    if isinstance(parts := schema.get("patternProperties"), dict):
        yield from parts.values()


def _one_of(schema: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas of which at most one applies to a member or an item."""
    if isinstance(parts := schema.get("properties"), dict):
        yield from parts.values()
    for keyword in ("prefixItems", "items"):
        if isinstance(parts := schema.get(keyword), list):
            yield from parts


def weight(value: Any, most: float = math.inf) -> int:
    """The size of a value, for code that has to look at all of it; at least ``most`` for a larger value.

    Text counts for little: most keywords look only at its length.
    """
    found = 0
    waiting: list[Any] = [dict(value) if isinstance(value, Mapping) else value]
    while waiting and found < most:
        one = waiting.pop()
        found += 1
        if isinstance(one, str):
            found += len(one) >> 8
        elif isinstance(one, dict | list):
            found += len(one)
            if found < most:
                waiting += one.values() if isinstance(one, dict) else one
    return found
