"""Inputs of a hosted tool as a whole. Pure.

Scalars are coerced, each by its own type; then JSON Schema judges ranges, lengths, patterns, and everything within
arrays and objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from adapter.rules.calls.inputs import (
    SCALARS,
    UNSET,
    Input,
    InputsRefused,
    InputType,
    input_schema,
    read,
)
from adapter.rules.results.refusals import uncheckable, unrecognized
from adapter.rules.schema.checker import (
    FORMATS,
    Checker,
    compile_schema,
    why_not,
)
from adapter.rules.schema.cost import STEPS, SchemaInvalid, SchemaTooLarge
from adapter.rules.text.events import shortened

MOST_UNKNOWN = 100
"""Fields that nobody declared of which a caller is told."""

MOST_VALUES = 10_000
"""Values within the arguments of one call that are checked by a schema; what holds more is refused."""

TYPES: Final[Mapping[str, InputType]] = {
    **{name: name for name in ("string", "int", "float", "boolean", "datetime", "array", "object", "any")},
    "integer": "int",
    "number": "float",
}
"""Types by the words of the short form and those of JSON Schema."""

_TEXT = ("minLength", "maxLength", "pattern", "format")
_NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_ARRAY = ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains")
_OBJECT = ("properties", "required", "additionalProperties", "minProperties", "maxProperties")
KEYWORDS: Final[Mapping[InputType, tuple[str, ...]]] = {
    "string": _TEXT,
    "int": _NUMBER,
    "float": _NUMBER,
    "boolean": (),
    "datetime": (),
    "array": _ARRAY,
    "object": _OBJECT,
    "any": (),
}
"""What may be said of an input beside its type."""

_WITHIN = ("items", "contains", "additionalProperties")
_SHORT = {"int": "integer", "float": "number"}
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class DeclaredInputs:
    """The inputs of a tool. ``each`` is by its name; ``schema`` is the one that clients see.

    ``checker`` judges what types leave open, None if they say everything.
    """

    each: Mapping[str, Input]
    schema: Mapping[str, Any]
    checker: Checker | None = None

    @classmethod
    def of(cls, each: Mapping[str, Input]) -> DeclaredInputs:
        """Return the inputs of the short form. Raises ValueError with a sentence for inputs that no argument could
        fit.
        """
        schema = input_schema(each)
        properties = schema["properties"]
        checked = {
            name: properties[name]
            for name, one in each.items()
            if one.keywords or (one.type not in SCALARS and one.type != "any")
        }
        checker = _checker({"type": "object", "properties": checked}) if checked else None
        inputs = cls(each, schema, checker)
        inputs._check_defaults()
        return inputs

    def weight(self, arguments: Mapping[str, Any]) -> int:
        """Return the number of values to check; 0 if types say everything, and at most one above MOST_VALUES."""
        if self.checker is None:
            return 0
        found, stack = 0, [*arguments.values()]
        while stack and found <= MOST_VALUES:
            value = stack.pop()
            found += 1
            if isinstance(value, Mapping):
                stack += value.values()
            elif isinstance(value, list | tuple):
                stack += value
        return found

    def fitted(self, arguments: Mapping[str, Any], *, steps: int = STEPS) -> dict[str, Any]:
        """Return the values of the inputs. Raises InputsRefused with all faults at once, and OutOfSteps."""
        values, faults = read(self.each, arguments)
        first = next(iter(faults), None)
        if self.checker is not None:
            wrong = {fault.path[:1] for fault in faults}
            judged = self.checker.judged(values, steps=steps).faults
            faults += [fault for fault in judged if fault.path[:1] not in wrong]
        if not arguments.keys() <= self.each.keys():
            unknown = (name for name in arguments if name not in self.each)
            faults.append(unrecognized((), list(islice(unknown, MOST_UNKNOWN))))
            first = first or faults[-1]
        if faults:
            raise InputsRefused(faults, first)
        return values

    def _check_defaults(self) -> None:
        for name, one in self.each.items():
            if one.default is UNSET:
                continue
            faults = () if self.checker is None else self.checker.judged({name: one.default}).faults
            if found := next(
                (fault for fault in faults if fault.path[:1] == (name,) and fault.keyword != "required"), None
            ):
                raise ValueError(f"the default of {name} does not fit: {found.problem}")


def too_many() -> InputsRefused:
    """Return the refusal of arguments with too many values to check."""
    return InputsRefused([uncheckable(f"The arguments have more than {MOST_VALUES} values.")])


def too_long(steps: int) -> InputsRefused:
    """Return the refusal of arguments that take more than ``steps`` to check."""
    return InputsRefused([uncheckable(f"Checking the arguments needs more than {steps} steps.")])


def keywords_of(kind: InputType, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of an input in the short form as JSON Schema.

    Raises ValueError for a keyword that does not apply to this type, an unknown format, an invalid pattern, and
    anything that is not a schema.
    """
    for name in keywords:
        if name not in KEYWORDS[kind]:
            of = ", ".join(KEYWORDS[kind]) or "nothing"
            raise ValueError(f"{name} does not apply to the type {kind}; this type may have {of}")
    return _spelled_out({**keywords}, 0, ())


def _spelled_out(schema: dict[str, Any], depth: int, place: tuple[str, ...]) -> dict[str, Any]:
    """The schema with JSON Schema's words for the short form's types, and closed where it names members."""
    where = f"{'.'.join(place)}: " if place else ""
    if depth > _DEEPEST:
        raise ValueError(f"{where}is nested deeper than {_DEEPEST} levels")
    if (kind := schema.get("type")) == "datetime":
        schema = {**schema, "type": "string", "format": "date-time"}
    elif isinstance(kind, str) and kind in _SHORT:
        schema = {**schema, "type": _SHORT[kind]}
    elif kind == "any":
        schema = {name: part for name, part in schema.items() if name != "type"}
    if depth and "optional" in schema:
        raise ValueError(
            f"{where}may not have optional: list the required members in required of the object around it"
        )
    _check_format(schema, where)
    if isinstance(pattern := schema.get("pattern"), str):
        _check_pattern(pattern, where)
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
        properties = schema["properties"]
        if not isinstance(properties, Mapping):
            raise ValueError(f"{where}properties must be a mapping of names to schemas")
        schema["properties"] = {
            str(name): _part(part, depth, (*place, str(name))) for name, part in properties.items()
        }
    for word in _WITHIN:
        if word in schema:
            schema[word] = _part(schema[word], depth, (*place, word))
    if isinstance(schema.get("prefixItems"), list):
        schema["prefixItems"] = [
            _part(part, depth, (*place, "prefixItems")) for part in schema["prefixItems"]
        ]
    return schema


def _part(part: Any, depth: int, place: tuple[str, ...]) -> Any:
    if isinstance(part, bool):
        return part
    if not isinstance(part, Mapping):
        raise ValueError(f"{'.'.join(place)}: must be a schema, such as {{type: string}}")
    return _spelled_out({**part}, depth + 1, place)


def _check_format(schema: Mapping[str, Any], where: str) -> None:
    word = schema.get("format")
    if word is not None and word not in FORMATS:
        (nearest,) = get_close_matches(str(word), FORMATS, n=1, cutoff=0) or [""]
        raise ValueError(f"{where}format must be one of {', '.join(FORMATS)}; the nearest is {nearest}")


def _check_pattern(pattern: str, where: str) -> None:
    if (why := why_not(pattern)) is not None:
        named = shortened(pattern, 100)
        raise ValueError(f"{where}pattern {named!r} is not a valid regular expression: {why}")


def _checker(schema: Mapping[str, Any]) -> Checker:
    try:
        checker = compile_schema(schema, strict=False, formats=True)
    except SchemaInvalid as invalid:
        raise ValueError(str(invalid)) from None
    except SchemaTooLarge:
        raise ValueError("has too many parts for a schema") from None
    for pattern in checker.unjudged:
        _check_pattern(pattern, "")
    return checker
