"""Keywords of JSON Schema that apply schemas: to the value itself, to its members, to its items. Pure.

Each is a ``Check`` of ``assertions``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adapter.rules.schema.assertions import lacking
from adapter.rules.schema.evaluation import Evaluation, Findings, Mismatch, Subject

MOST_WAYS = 20
"""Alternatives of which it is remembered why they do not fit: of more nobody is told."""


# --- to the value itself --------------------------------------------------------------------------------------


def ref(at: Subject, target: Any) -> None:
    judge = at.run.within if at.run.tracks else at.run.judge
    judge(at.node.referred(target), at.instance, at.place, at.found)


def dynamic_ref(at: Subject, target: Any) -> None:
    at.run.take(len(at.run.scope) >> 2)
    node = at.node.dynamically_referred(target, at.run.scope)
    at.run.within(node, at.instance, at.place, at.found)


def recursive_ref(at: Subject, target: Any) -> None:
    at.run.take(len(at.run.scope) >> 2)
    node = at.node.recursively_referred(target, at.run.scope)
    at.run.within(node, at.instance, at.place, at.found)


def all_of(at: Subject, parts: Any) -> None:
    for part in parts:
        at.within(part)
        if at.found.enough:
            return


def any_of(at: Subject, parts: Any) -> None:
    ways: list[Mismatch] = []
    fits = False
    for part in parts:
        way = Findings(2)
        if at.tried(part, way):
            fits = True
            if not at.run.tracks:
                return
        ways += way.all
    if not fits:
        _none_fits("anyOf", at, parts, ways)


def one_of(at: Subject, parts: Any) -> None:
    ways: list[Mismatch] = []
    fitting: list[Any] = []
    for part in parts:
        way = Findings(2)
        if at.tried(part, way):
            fitting.append(part)
            if len(fitting) > 1:
                at.miss("oneOf", parts, fitting)
                return
        ways += way.all
    if not fitting:
        _none_fits("oneOf", at, parts, ways)


def _none_fits(keyword: str, at: Subject, parts: Sequence[Any], ways: list[Mismatch]) -> None:
    mismatch = Mismatch(keyword, at.place, at.instance, at.node.schema, parts)
    if len(parts) <= MOST_WAYS:
        mismatch.ways = ways
    at.found.add(mismatch)


def not_(at: Subject, part: Any) -> None:
    if at.run.fits(at.node.part(part), at.instance):
        at.miss("not", part)


def if_(at: Subject, part: Any) -> None:
    branch = "then" if at.tried(part, Findings(1)) else "else"
    if branch in at.node.schema:
        at.within(at.node.schema[branch])


def dependent_schemas(at: Subject, parts: Any) -> None:
    if isinstance(at.instance, dict):
        at.run.take(len(parts) >> 2)
        for name, part in parts.items():
            if name in at.instance:
                at.within(part)


def dependencies(at: Subject, parts: Any) -> None:
    """Before 2019-09: under each name a schema, or names."""
    if not isinstance(at.instance, dict):
        return
    at.run.take(len(parts) >> 2)
    for name, part in parts.items():
        if name not in at.instance:
            continue
        if isinstance(part, list):
            at.run.take(len(part) >> 2)
            for each in lacking(part, at.instance):
                at.miss("dependencies", parts, (each, name))
        else:
            at.within(part)


# --- to members -----------------------------------------------------------------------------------------------


def properties(at: Subject, parts: Any) -> None:
    if not isinstance(at.instance, dict):
        return
    at.run.take(len(parts) >> 2)
    for name, part in parts.items():
        if name in at.instance:
            if at.run.tracks:
                at.run.evaluated.names.add(name)
            if not at.child(part, name):
                return


def pattern_properties(at: Subject, parts: Any) -> None:
    if not isinstance(at.instance, dict):
        return
    for source, part in parts.items():
        at.run.take(1 + (len(at.instance) >> 2))
        for name in at.instance:
            if at.run.occurs(source, name):
                at.run.evaluated.names.add(name)
                at.child(part, name)


def additional_properties(at: Subject, part: Any) -> None:
    if not isinstance(at.instance, dict):
        return
    names = unknown_names(at.run, at.node.schema, at.instance)
    at.run.evaluated.names.update(names)
    if part is False:
        if names:
            at.miss("additionalProperties", part, names)
        return
    for name in names:
        if not at.child(part, name):
            return


def unknown_names(run: Evaluation, schema: Mapping[str, Any], instance: Mapping[str, Any]) -> list[str]:
    """The members of an object that neither ``properties`` nor ``patternProperties`` names.

    A member is not unknown when a pattern that cannot be judged may name it.
    """
    declared, patterns = schema.get("properties") or {}, schema.get("patternProperties") or {}
    run.take(len(instance) >> 1)
    return [
        name
        for name in instance
        if name not in declared and all(run.occurs(source, name) is False for source in patterns)
    ]


def property_names(at: Subject, part: Any) -> None:
    for name in at.instance if isinstance(at.instance, dict) else ():
        at.run.apply(at.node.part(part), name, at.place, at.found)
        if at.found.enough:
            return


# --- to items -------------------------------------------------------------------------------------------------


def prefix_items(at: Subject, parts: Any) -> None:
    if not isinstance(at.instance, list):
        return
    first = min(len(parts), len(at.instance))
    at.run.evaluated.first_items = max(at.run.evaluated.first_items, first)
    for number in range(first):
        if not at.child(parts[number], number):
            return


def items(at: Subject, part: Any) -> None:
    if isinstance(at.instance, list):
        _rest(at, part, len(at.node.schema.get("prefixItems", ())))


def old_items(at: Subject, part: Any) -> None:
    """Before 2020-12, when a list of schemas was for the first items."""
    if isinstance(part, list):
        prefix_items(at, part)
    elif isinstance(at.instance, list):
        _rest(at, part, 0)


def additional_items(at: Subject, part: Any) -> None:
    first = at.node.schema.get("items")
    if not isinstance(at.instance, list) or not isinstance(first, list):
        return
    if part is False and len(at.instance) > len(first):
        at.run.take(len(at.instance) >> 5)
        at.miss("additionalItems", part, at.instance[len(first) :])
    elif part is not False:
        _rest(at, part, len(first))


def _rest(at: Subject, part: Any, first: int) -> None:
    at.run.evaluated.all_items = True
    if part is False and len(at.instance) > first:
        at.run.take(len(at.instance) >> 5)
        at.miss("items", part, (first, at.instance[first:]))
        return
    for number in range(first, len(at.instance)):
        if not at.child(part, number):
            return


def contains(at: Subject, part: Any) -> None:
    """Since 2019-09, with ``minContains`` and ``maxContains``."""
    _contains(at, part, at.node.schema.get("minContains", 1), at.node.schema.get("maxContains"))


def old_contains(at: Subject, part: Any) -> None:
    _contains(at, part, 1, None)


def _contains(at: Subject, part: Any, least: float, most: float | None) -> None:
    if not isinstance(at.instance, list):
        return
    child, fitting = at.node.part(part), 0
    for number, item in enumerate(at.instance):
        if at.run.fits(child, item):
            fitting += 1
            if at.node.draft.contains_evaluates:
                at.run.evaluated.items.add(number)
            if most is not None and fitting > most:
                at.miss("maxContains", most)
                return
    if fitting < least:
        at.miss("minContains" if fitting else "contains", least, fitting)


# --- to what is left ------------------------------------------------------------------------------------------


def unevaluated_properties(at: Subject, part: Any) -> None:
    if not isinstance(at.instance, dict):
        return
    seen, child = at.run.evaluated, at.node.part(part)
    at.run.take(len(at.instance) >> 2)
    names = [
        name
        for name, member in at.instance.items()
        if name not in seen.names and not at.run.fits(child, member)
    ]
    seen.names.update(at.instance)
    if names:
        at.miss("unevaluatedProperties", part, names)


def unevaluated_items(at: Subject, part: Any) -> None:
    seen, child = at.run.evaluated, at.node.part(part)
    if not isinstance(at.instance, list) or seen.all_items:
        return
    left = [
        item
        for number, item in enumerate(at.instance)
        if number >= seen.first_items and number not in seen.items and not at.run.fits(child, item)
    ]
    seen.all_items = True
    if left:
        at.miss("unevaluatedItems", part, left)
