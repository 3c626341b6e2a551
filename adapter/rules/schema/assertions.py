"""Keywords of JSON Schema that look at a value itself: its type, its size, its equals. Pure.

Each takes the evaluation, the schema, the keyword's value, the instance, its place and the findings (``Check``).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from adapter.rules.schema.evaluation import Evaluation, Findings, Mismatch, Place

if TYPE_CHECKING:
    from adapter.rules.schema.documents import SchemaNode

Check = Callable[[Evaluation, "SchemaNode", Any, Any, Place, Findings], None]


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


def type_(
    run: Evaluation, node: SchemaNode, types: Any, instance: Any, place: Place, found: Findings
) -> None:
    named = [types] if isinstance(types, str) else types
    if not any(_TYPES[name](instance) for name in named):
        found.add(Mismatch("type", place, instance, node.schema, types))


def old_type(
    run: Evaluation, node: SchemaNode, types: Any, instance: Any, place: Place, found: Findings
) -> None:
    """Draft 4, where 1.0 is no integer."""
    named = [types] if isinstance(types, str) else types
    if isinstance(instance, float) and "number" not in named:
        found.add(Mismatch("type", place, instance, node.schema, types))
    else:
        type_(run, node, types, instance, place, found)


# --- equals ---------------------------------------------------------------------------------------------------


def enum(
    run: Evaluation, node: SchemaNode, options: Any, instance: Any, place: Place, found: Findings
) -> None:
    run.take(len(options) >> 2)
    if not any(equal(run, option, instance) for option in options):
        found.add(Mismatch("enum", place, instance, node.schema, options))


def const(
    run: Evaluation, node: SchemaNode, value: Any, instance: Any, place: Place, found: Findings
) -> None:
    if not equal(run, value, instance):
        found.add(Mismatch("const", place, instance, node.schema, value))


def unique_items(
    run: Evaluation, node: SchemaNode, wanted: Any, instance: Any, place: Place, found: Findings
) -> None:
    if not wanted or not isinstance(instance, list):
        return
    run.take(len(instance) >> 2)
    seen = set()
    for item in instance:
        identity = _identity(run, item)
        if identity in seen:
            found.add(Mismatch("uniqueItems", place, instance, node.schema, wanted))
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
    def check(
        run: Evaluation, node: SchemaNode, limit: Any, instance: Any, place: Place, found: Findings
    ) -> None:
        if is_number(instance) and not fits(instance, limit, node.schema):
            found.add(Mismatch(keyword, place, instance, node.schema, limit))

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


def multiple_of(
    run: Evaluation, node: SchemaNode, of: Any, instance: Any, place: Place, found: Findings
) -> None:
    if not is_number(instance):
        return
    if isinstance(of, float):
        # Fractions are dear, those of numbers with many digits more so.
        run.take(16 + (instance.bit_length() >> 6 if isinstance(instance, int) else 0))
    if not _is_multiple(instance, of):
        found.add(Mismatch("multipleOf", place, instance, node.schema, of))


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
    def check(
        run: Evaluation, node: SchemaNode, limit: Any, instance: Any, place: Place, found: Findings
    ) -> None:
        if isinstance(instance, kind) and not fits(len(instance), limit):
            found.add(Mismatch(keyword, place, instance, node.schema, limit))

    return check


min_length = _sized("minLength", str, lambda size, limit: size >= limit)
max_length = _sized("maxLength", str, lambda size, limit: size <= limit)
min_items = _sized("minItems", list, lambda size, limit: size >= limit)
max_items = _sized("maxItems", list, lambda size, limit: size <= limit)
min_properties = _sized("minProperties", dict, lambda size, limit: size >= limit)
max_properties = _sized("maxProperties", dict, lambda size, limit: size <= limit)


def pattern(
    run: Evaluation, node: SchemaNode, source: Any, instance: Any, place: Place, found: Findings
) -> None:
    if isinstance(instance, str) and run.occurs(source, instance) is False:
        found.add(Mismatch("pattern", place, instance, node.schema, source))


# --- members --------------------------------------------------------------------------------------------------


def required(
    run: Evaluation, node: SchemaNode, names: Any, instance: Any, place: Place, found: Findings
) -> None:
    if not isinstance(instance, dict):
        return
    run.take(len(names) >> 2)
    for name in names:
        if name not in instance:
            found.add(Mismatch("required", place, instance, node.schema, names, name))


def dependent_required(
    run: Evaluation, node: SchemaNode, dependencies: Any, instance: Any, place: Place, found: Findings
) -> None:
    if not isinstance(instance, dict):
        return
    for name, wanted in dependencies.items():
        run.take(1 + (len(wanted) >> 2))
        if name in instance:
            for each in lacking(wanted, instance):
                detail = (each, name)
                found.add(Mismatch("dependentRequired", place, instance, node.schema, dependencies, detail))


def lacking(names: Iterable[str], instance: Mapping[str, Any]) -> Iterator[str]:
    """Those of the names that an object has no members of."""
    return (name for name in names if name not in instance)
