"""Keywords of JSON Schema that look at a value itself: its type, its size, its equals. Pure."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from adapter.rules.schema.evaluation import Evaluation, Subject

Check = Callable[[Subject, Any], None]
"""One keyword: it judges a subject by the keyword's value, and notes what does not fit."""


_COMPARED: Final = 12
_COPIED: Final = 9
"""Powers of two of the characters of a text that one step compares, or copies and hashes."""


def is_number(value: Any) -> bool:
    """Tell whether the value is a number in JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return is_number(value) and (isinstance(value, int) or value.is_integer())


_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "number": is_number,
    "integer": _is_integer,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
TYPES: Final = frozenset(_TYPES)


def type_(at: Subject, types: Any) -> None:
    named = [types] if isinstance(types, str) else types
    if not any(_TYPES[name](at.instance) for name in named):
        at.miss("type", types)


def old_type(at: Subject, types: Any) -> None:
    """Draft 4, where 1.0 is no integer."""
    named = [types] if isinstance(types, str) else types
    if isinstance(at.instance, float) and "number" not in named:
        at.miss("type", types)
    else:
        type_(at, types)


# --- equals ---------------------------------------------------------------------------------------------------


def enum(at: Subject, options: Any) -> None:
    at.run.take(len(options) >> 2)
    if not any(equal(at.run, option, at.instance) for option in options):
        at.miss("enum", options)


def const(at: Subject, value: Any) -> None:
    if not equal(at.run, value, at.instance):
        at.miss("const", value)


def unique_items(at: Subject, wanted: Any) -> None:
    if not wanted or not isinstance(at.instance, list):
        return
    at.run.take(len(at.instance) >> 2)
    seen = set()
    for item in at.instance:
        identity = _identity(at.run, item)
        if identity in seen:
            at.miss("uniqueItems", wanted)
            return
        seen.add(identity)


def equal(run: Evaluation, one: Any, two: Any) -> bool:
    """Tell whether two values are equal in JSON: 1 is 1.0, true is not 1. Raises OutOfSteps."""
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    if isinstance(one, list) and isinstance(two, list):
        run.take(1 + (len(one) >> 2))
        return len(one) == len(two) and all(equal(run, *pair) for pair in zip(one, two, strict=True))
    if isinstance(one, dict) and isinstance(two, dict):
        run.take(1 + (len(one) >> 2))
        return len(one) == len(two) and all(
            name in two and equal(run, member, two[name]) for name, member in one.items()
        )
    if isinstance(one, str) and isinstance(two, str) and len(one) == len(two):
        run.take(len(one) >> _COMPARED)
    return bool(one == two)


def _identity(run: Evaluation, value: Any) -> Any:
    """Equal for values that are; a text wherever somebody could choose values whose hashes collide."""
    if is_number(value) and abs(value) < sys.hash_info.modulus:
        return value
    return _spelled(run, value)


def _spelled(run: Evaluation, value: Any) -> str:
    text = _text(run, value)
    run.take(len(text) >> _COPIED)
    return text


def _text(run: Evaluation, value: Any) -> str:
    if isinstance(value, str):
        return f"{len(value)}:{value}"
    if is_number(value):
        return f"{int(value) if _is_integer(value) else value}"
    if isinstance(value, list):
        run.take(1 + (len(value) >> 2))
        return f"[{','.join(_spelled(run, item) for item in value)}]"
    if isinstance(value, dict):
        run.take(1 + (len(value) >> 1))
        members = sorted((name, _spelled(run, member)) for name, member in value.items())
        return f"{{{','.join(f'{len(name)}:{name}={member}' for name, member in members)}}}"
    return repr(value)


# --- numbers --------------------------------------------------------------------------------------------------


def _number(keyword: str, fits: Callable[[Any, Any, Any], bool]) -> Check:
    def check(at: Subject, limit: Any) -> None:
        if is_number(at.instance) and not fits(at.instance, limit, at.node.schema):
            at.miss(keyword, limit)

    return check


minimum = _number("minimum", lambda number, limit, _: number >= limit)
maximum = _number("maximum", lambda number, limit, _: number <= limit)
exclusive_minimum = _number("exclusiveMinimum", lambda number, limit, _: number > limit)
exclusive_maximum = _number("exclusiveMaximum", lambda number, limit, _: number < limit)
old_minimum = _number(
    "minimum",
    lambda number, limit, schema: number > limit or (number == limit and not schema.get("exclusiveMinimum")),
)
old_maximum = _number(
    "maximum",
    lambda number, limit, schema: number < limit or (number == limit and not schema.get("exclusiveMaximum")),
)


def multiple_of(at: Subject, of: Any) -> None:
    if not is_number(at.instance):
        return
    if isinstance(of, float):
        # Fractions are dear, those of numbers with many digits more so.
        at.run.take(16 + (at.instance.bit_length() >> 6 if isinstance(at.instance, int) else 0))
    if not _is_multiple(at.instance, of):
        at.miss("multipleOf", of)


def _is_multiple(number: Any, of: Any) -> bool:
    if isinstance(number, float) and math.isinf(number):
        # A number that was too large for a float: what it was nobody knows.
        return True
    if not isinstance(of, float):
        return bool(number % of == 0)
    try:
        quotient = number / of
        return bool(int(quotient) == quotient)
    except OverflowError:
        return (Fraction(number) / Fraction(of)).denominator == 1


# --- sizes ----------------------------------------------------------------------------------------------------


def _sized(
    keyword: str, kind: type[str] | type[list[Any]] | type[dict[str, Any]], fits: Callable[[int, Any], bool]
) -> Check:
    def check(at: Subject, limit: Any) -> None:
        if isinstance(at.instance, kind) and not fits(len(at.instance), limit):
            at.miss(keyword, limit)

    return check


min_length = _sized("minLength", str, lambda size, limit: size >= limit)
max_length = _sized("maxLength", str, lambda size, limit: size <= limit)
min_items = _sized("minItems", list, lambda size, limit: size >= limit)
max_items = _sized("maxItems", list, lambda size, limit: size <= limit)
min_properties = _sized("minProperties", dict, lambda size, limit: size >= limit)
max_properties = _sized("maxProperties", dict, lambda size, limit: size <= limit)


def pattern(at: Subject, source: Any) -> None:
    if isinstance(at.instance, str) and at.run.occurs(source, at.instance) is False:
        at.miss("pattern", source)


# --- members --------------------------------------------------------------------------------------------------


def required(at: Subject, names: Any) -> None:
    if not isinstance(at.instance, dict):
        return
    at.run.take(len(names) >> 2)
    for name in names:
        if name not in at.instance:
            at.miss("required", names, name)


def dependent_required(at: Subject, dependencies: Any) -> None:
    if not isinstance(at.instance, dict):
        return
    for name, wanted in dependencies.items():
        at.run.take(1 + (len(wanted) >> 2))
        if name in at.instance:
            for each in lacking(wanted, at.instance):
                detail = (each, name)
                at.miss("dependentRequired", dependencies, detail)


def lacking(names: Iterable[str], instance: Mapping[str, Any]) -> Iterator[str]:
    """Those of the names that an object has no members of."""
    return (name for name in names if name not in instance)
