"""The work that a schema may make of a value, known before anybody does it. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple
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
"""Characters of the name of a member in a schema: each mistake within it is told with its whole path."""

LONGEST_KEY = 1 << 16
"""Characters of a name in a value, which counts as a text does."""

BYTES_OF_STEP: Final = 1 << 10
STEPS_OF_FAULT: Final = 4
"""What may be written of mistakes for each step that a check may take: so many bytes, a mistake for so many steps."""

_LONGEST_ERROR = 300
_ODD_LEVELS: Final = 200
_PATTERN: Final = 50
"""Parts that a pattern counts for, because it is compiled."""

_STATES_OF_STEP: Final = 200
_MOST_STATES: Final = 5_000
"""States of a pattern that are looked at in a step, for one character; a larger pattern is not compiled at once."""

_COUNT: Final = re.compile(r"\d+")
_REPEATED_GROUP: Final = re.compile(r"\)[^()]*\{")

_ALIKE: Final = ("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")
_SELF: Final = ("not", "if", "then", "else", "extends")
_EACH: Final = (
    *("items", "additionalItems", "contains", "unevaluatedItems", "propertyNames"),
    *("additionalProperties", "unevaluatedProperties"),
)
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMING: Final = ("$id", "id", "$anchor", "$dynamicAnchor")


class SchemaInvalid(ValueError):
    """A schema that nothing can be checked by; ``str`` is a sentence that says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(shortened(sentence.partition("\n")[0], _LONGEST_ERROR))


class SchemaTooLarge(Exception):
    """A schema has more parts, or larger patterns, than are looked at here."""


class OutOfSteps(Exception):
    """A check may take more steps than it is allowed."""


class Levels(NamedTuple):
    """What a value has at each depth: the work of looking at it, its values, the size of its texts. ``path`` is the
    length of the longest path.
    """

    work: list[int]
    values: list[int]
    texts: list[int]
    path: int


class Cost:
    """The cost of a schema of at most ``parts`` parts. Raises SchemaInvalid and SchemaTooLarge."""

    def __init__(self, schema: Mapping[str, Any], parts: int) -> None:
        self._schema = schema
        self._left = parts
        self._budget = parts * 4
        self._size = 0
        # Steps of a character; 0 where no text is read.
        self._reading = 0
        self._addresses = 0
        self._speaks_of_names = False
        self._is_ambiguous = False
        # By what references say of them.
        self._named: dict[str, Any] = {}
        self._known: dict[tuple[int, int], int | None] = {}
        self._survey()

    def steps(self, value: Any, most: int) -> int:
        """The steps that a check takes at worst: schemas that apply to a value, times what there is to look at.

        Raises OutOfSteps for more than ``most``.
        """
        # A keyword may look at everything within its value.
        steps = self._sum(_within(self._levels(value, most).work))
        if steps > most:
            raise OutOfSteps
        return steps

    def tell(self, value: Any, most: int) -> None:
        """Raise OutOfSteps where to say what is wrong with a value may take more than ``most`` steps.

        Each mistake is written down, also those that nobody is told: with its path, its value, and parts of the schema.
        """
        _, values, texts, path = self._levels(value, most)
        faults = self._sum(values)
        # Of a name, the whole object is written down.
        shown = faults * sum(texts) if self._speaks_of_names else self._sum(_within(texts))
        if faults * STEPS_OF_FAULT > most or faults * (self._size + path) + shown > most * BYTES_OF_STEP:
            raise OutOfSteps

    def _sum(self, levels: Iterable[int]) -> int:
        try:
            return sum(self._applied(self._schema, depth) * each for depth, each in enumerate(levels))
        except RecursionError:
            raise OutOfSteps from None

    def _survey(self) -> None:
        # Each part with its depth, and the length of its path, which the library writes down with it.
        waiting: list[tuple[Any, int, int]] = [(self._schema, 0, 0)]
        while waiting:
            one, depth, path = waiting.pop()
            if depth > 2 * DEEPEST:
                raise SchemaInvalid("The schema is nested too deeply.")
            self._left -= 1 + (path >> 10)
            if isinstance(one, str):
                self._count(len(one))
            elif isinstance(one, int):
                self._count(one.bit_length())
            if self._left < (len(one) if isinstance(one, dict | list) else 0):
                raise SchemaTooLarge
            if isinstance(one, dict):
                self._note(one)
                waiting += ((part, depth + 1, path + len(name)) for name, part in one.items())
            elif isinstance(one, list):
                waiting += ((part, depth + 1, path) for part in one)

    def _count(self, size: int) -> None:
        self._left -= size >> 8
        self._size += size

    def _note(self, part: Mapping[str, Any]) -> None:
        if max(map(len, part), default=0) > LONGEST_NAME:
            raise SchemaTooLarge
        self._count(sum(map(len, part)))
        self._speaks_of_names |= "propertyNames" in part
        if "format" in part:
            self._reading = max(self._reading, 1)
        for keyword in ("pattern", "patternProperties"):
            patterns = part.get(keyword)
            for pattern in patterns if isinstance(patterns, dict) else [patterns] if patterns else ():
                self._left -= _PATTERN
                self._reading = max(self._reading, 1 + _states(pattern) // _STATES_OF_STEP)
        for keyword in ("$id", "id", *_REFERENCES):
            if isinstance(name := part.get(keyword), str):
                if len(name) > LONGEST_URI:
                    raise SchemaInvalid(f"A URI of the schema is longer than {LONGEST_URI} characters.")
                # The library writes each down whole, with those it is relative to.
                self._left -= (self._addresses + len(name)) >> 6
                self._addresses += len(name) if "id" in keyword else 0
        for keyword in _NAMING:
            if isinstance(name := part.get(keyword), str):
                name = name if "id" in keyword else f"#{name}"
                # Within a part with an address of its own, references lead elsewhere.
                self._is_ambiguous |= name in self._named or ("id" in keyword and part is not self._schema)
                self._named[name] = part

    def _levels(self, value: Any, most: int) -> Levels:
        levels = Levels([], [], [], 0)
        total, path = 0, 0
        waiting: list[Any] = [value]
        while waiting:
            work, texts, longest = len(waiting), 0, 0
            below: list[Any] = []
            for one in waiting:
                length = 0
                if isinstance(one, str):
                    length = len(one)
                elif isinstance(one, dict | list):
                    if len(one) > most:
                        raise OutOfSteps
                    below += one.values() if isinstance(one, dict) else one
                    if isinstance(one, dict) and one:
                        longest = max(longest, *map(len, one))
                        if longest > LONGEST_KEY:
                            raise OutOfSteps
                        length = sum(map(len, one))
                elif isinstance(one, int):
                    work += one.bit_length() >> 6
                work += length * self._reading or length >> 8
                texts += length
                if len(below) > most:
                    raise OutOfSteps
            total += work
            if total > most or len(levels.work) > _ODD_LEVELS:
                raise OutOfSteps
            levels.work.append(work)
            levels.values.append(len(waiting))
            levels.texts.append(texts)
            path += longest
            waiting = below
        return levels._replace(path=path)

    def _applied(self, schema: Any, depth: int) -> int:
        """How much of a schema applies to one value so far within the one that the schema is for."""
        if not isinstance(schema, dict):
            return depth == 0
        # What is known counts too: a schema may refer to one part a thousand times, at each depth.
        self._budget -= 1 + (len(schema) >> 3)
        if self._budget < 0:
            raise OutOfSteps
        key = (id(schema), depth)
        if (found := self._known.get(key, -1)) != -1:
            if found is None:
                # It refers to itself for the same value.
                raise OutOfSteps
            return found
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
        if self._is_ambiguous:
            # Only the library knows where that leads.
            raise OutOfSteps
        if reference in self._named:
            return self._named[reference]
        target: Any = self._schema
        if not reference.startswith("#"):
            raise OutOfSteps
        try:
            for part in unquote(reference[1:]).split("/")[1:]:
                name = part.replace("~1", "/").replace("~0", "~")
                target = target[int(name) if isinstance(target, list) else name]
        except (LookupError, TypeError, ValueError):
            raise OutOfSteps from None
        return target


def _within(levels: Sequence[int]) -> list[int]:
    """What there is at each depth and below."""
    return list(accumulate(reversed(levels)))[::-1]


def _states(pattern: Any) -> int:
    """The states that an engine may be in at once, which it looks through for each character."""
    if not isinstance(pattern, str):
        return 0
    counts = _COUNT.findall(pattern) if "{" in pattern else ()
    if _REPEATED_GROUP.search(pattern) or any(len(count) > 4 for count in counts):
        return _MOST_STATES
    return min(_MOST_STATES, len(pattern) * max(map(int, counts), default=1))


def _own(schema: Mapping[str, Any]) -> int:
    """The steps of a schema's own keywords at one value."""
    steps = len(schema)
    for keyword, value in schema.items():
        if isinstance(value, list | dict):
            steps += len(value) >> (0 if keyword == "required" else 2)
        if keyword in ("dependentRequired", "dependencies") and isinstance(value, dict):
            steps += sum(len(names) for names in value.values() if isinstance(names, list))
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
        elif isinstance(one, int):
            found += one.bit_length() >> 6
        elif isinstance(one, dict | list):
            found += len(one)
            if found < most:
                waiting += one.values() if isinstance(one, dict) else one
    return found
