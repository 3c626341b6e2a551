"""Keywords of JSON Schema that apply schemas: to the value itself, to its members, to its items. Pure.

Each takes what ``assertions`` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adapter.rules.schema.assertions import lacking
from adapter.rules.schema.evaluation import Evaluation, Findings, Mismatch, Place

if TYPE_CHECKING:
    from adapter.rules.schema.documents import SchemaNode

MOST_WAYS = 20
"""Alternatives of which it is remembered why they do not fit: of more nobody is told."""


# --- to the value itself --------------------------------------------------------------------------------------


def ref(run: Evaluation, node: SchemaNode, target: Any, instance: Any, place: Place, found: Findings) -> None:
    run.within(node.referred(target), instance, place, found)


def dynamic_ref(
    run: Evaluation, node: SchemaNode, target: Any, instance: Any, place: Place, found: Findings
) -> None:
    run.take(len(run.scope) >> 2)
    run.within(node.dynamically_referred(target, run.scope), instance, place, found)


def recursive_ref(
    run: Evaluation, node: SchemaNode, target: Any, instance: Any, place: Place, found: Findings
) -> None:
    run.take(len(run.scope) >> 2)
    run.within(node.recursively_referred(target, run.scope), instance, place, found)


def all_of(
    run: Evaluation, node: SchemaNode, parts: Any, instance: Any, place: Place, found: Findings
) -> None:
    for part in parts:
        run.within(node.part(part), instance, place, found)
        if found.enough:
            return


def any_of(
    run: Evaluation, node: SchemaNode, parts: Any, instance: Any, place: Place, found: Findings
) -> None:
    ways: list[Mismatch] = []
    fits = False
    for part in parts:
        way = Findings(2)
        if run.within(node.part(part), instance, None, way):
            fits = True
            if not run.tracks:
                return
        ways += way.all
    if not fits:
        _none_fits("anyOf", node, parts, instance, place, found, ways)


def one_of(
    run: Evaluation, node: SchemaNode, parts: Any, instance: Any, place: Place, found: Findings
) -> None:
    ways: list[Mismatch] = []
    fitting: list[Any] = []
    for part in parts:
        way = Findings(2)
        if run.within(node.part(part), instance, None, way):
            fitting.append(part)
            if len(fitting) > 1:
                found.add(Mismatch("oneOf", place, instance, node.schema, parts, fitting))
                return
        ways += way.all
    if not fitting:
        _none_fits("oneOf", node, parts, instance, place, found, ways)


def _none_fits(
    keyword: str,
    node: SchemaNode,
    parts: Sequence[Any],
    instance: Any,
    place: Place,
    found: Findings,
    ways: list[Mismatch],
) -> None:
    mismatch = Mismatch(keyword, place, instance, node.schema, parts)
    if len(parts) <= MOST_WAYS:
        mismatch.ways = ways
    found.add(mismatch)


def not_(run: Evaluation, node: SchemaNode, part: Any, instance: Any, place: Place, found: Findings) -> None:
    if run.fits(node.part(part), instance):
        found.add(Mismatch("not", place, instance, node.schema, part))


def if_(run: Evaluation, node: SchemaNode, part: Any, instance: Any, place: Place, found: Findings) -> None:
    fits = run.within(node.part(part), instance, None, Findings(1))
    branch = "then" if fits else "else"
    if branch in node.schema:
        run.within(node.part(node.schema[branch]), instance, place, found)


def dependent_schemas(
    run: Evaluation, node: SchemaNode, parts: Any, instance: Any, place: Place, found: Findings
) -> None:
    if not isinstance(instance, dict):
        return
    run.take(len(parts) >> 2)
    for name, part in parts.items():
        if name in instance:
            run.within(node.part(part), instance, place, found)


def dependencies(
    run: Evaluation, node: SchemaNode, parts: Any, instance: Any, place: Place, found: Findings
) -> None:
    """Before 2019-09: under each name a schema, or names."""
    if not isinstance(instance, dict):
        return
    run.take(len(parts) >> 2)
    for name, part in parts.items():
        if name not in instance:
            continue
        if isinstance(part, list):
            run.take(len(part) >> 2)
            for each in lacking(part, instance):
                found.add(Mismatch("dependencies", place, instance, node.schema, parts, (each, name)))
        else:
            run.within(node.part(part), instance, place, found)


# --- to members -----------------------------------------------------------------------------------------------


def properties(
    run: Evaluation, node: SchemaNode, parts: Any, instance: Any, place: Place, found: Findings
) -> None:
    if not isinstance(instance, dict):
        return
    run.take(len(parts) >> 2)
    for name, part in parts.items():
        if name in instance:
            if run.tracks:
                run.evaluated.names.add(name)
            run.apply(node.part(part), instance[name], (place, name), found)
            if found.enough:
                return


def pattern_properties(
    run: Evaluation, node: SchemaNode, parts: Any, instance: Any, place: Place, found: Findings
) -> None:
    if not isinstance(instance, dict):
        return
    for source, part in parts.items():
        run.take(1 + (len(instance) >> 2))
        for name, member in instance.items():
            if run.occurs(source, name):
                run.evaluated.names.add(name)
                run.apply(node.part(part), member, (place, name), found)


def additional_properties(
    run: Evaluation, node: SchemaNode, part: Any, instance: Any, place: Place, found: Findings
) -> None:
    if not isinstance(instance, dict):
        return
    names = unknown_names(run, node.schema, instance)
    run.evaluated.names.update(names)
    if part is False:
        if names:
            found.add(Mismatch("additionalProperties", place, instance, node.schema, part, names))
        return
    for name in names:
        run.apply(node.part(part), instance[name], (place, name), found)
        if found.enough:
            return


def unknown_names(run: Evaluation, schema: Mapping[str, Any], instance: Mapping[str, Any]) -> list[str]:
    """The members of an object that neither ``properties`` nor ``patternProperties`` speaks of.

    One that a pattern may speak of which nobody can judge is none of them.
    """
    declared, patterns = schema.get("properties") or {}, schema.get("patternProperties") or {}
    run.take(len(instance) >> 1)
    return [
        name
        for name in instance
        if name not in declared and all(run.occurs(source, name) is False for source in patterns)
    ]


def property_names(
    run: Evaluation, node: SchemaNode, part: Any, instance: Any, place: Place, found: Findings
) -> None:
    if not isinstance(instance, dict):
        return
    for name in instance:
        run.apply(node.part(part), name, place, found)
        if found.enough:
            return


# --- to items -------------------------------------------------------------------------------------------------


def prefix_items(
    run: Evaluation, node: SchemaNode, parts: Any, instance: Any, place: Place, found: Findings
) -> None:
    if not isinstance(instance, list):
        return
    first = min(len(parts), len(instance))
    run.evaluated.first_items = max(run.evaluated.first_items, first)
    for number in range(first):
        run.apply(node.part(parts[number]), instance[number], (place, number), found)
        if found.enough:
            return


def items(run: Evaluation, node: SchemaNode, part: Any, instance: Any, place: Place, found: Findings) -> None:
    if isinstance(instance, list):
        _rest(run, node, part, len(node.schema.get("prefixItems", ())), instance, place, found)


def old_items(
    run: Evaluation, node: SchemaNode, part: Any, instance: Any, place: Place, found: Findings
) -> None:
    """Before 2020-12, when a list of schemas was for the first items."""
    if isinstance(part, list):
        prefix_items(run, node, part, instance, place, found)
    elif isinstance(instance, list):
        _rest(run, node, part, 0, instance, place, found)


def additional_items(
    run: Evaluation, node: SchemaNode, part: Any, instance: Any, place: Place, found: Findings
) -> None:
    first = node.schema.get("items")
    if not isinstance(instance, list) or not isinstance(first, list):
        return
    if part is False and len(instance) > len(first):
        run.take(len(instance) >> 5)
        found.add(Mismatch("additionalItems", place, instance, node.schema, part, instance[len(first) :]))
    elif part is not False:
        _rest(run, node, part, len(first), instance, place, found)


def _rest(
    run: Evaluation, node: SchemaNode, part: Any, first: int, instance: Any, place: Place, found: Findings
) -> None:
    run.evaluated.all_items = True
    if part is False and len(instance) > first:
        run.take(len(instance) >> 5)
        found.add(Mismatch("items", place, instance, node.schema, part, (first, instance[first:])))
        return
    child = node.part(part)
    for number in range(first, len(instance)):
        run.apply(child, instance[number], (place, number), found)
        if found.enough:
            return


def contains(
    run: Evaluation, node: SchemaNode, part: Any, instance: Any, place: Place, found: Findings
) -> None:
    """Since 2019-09, with ``minContains`` and ``maxContains``."""
    least, most = node.schema.get("minContains", 1), node.schema.get("maxContains")
    _contains(run, node, part, least, most, instance, place, found)


def old_contains(
    run: Evaluation, node: SchemaNode, part: Any, instance: Any, place: Place, found: Findings
) -> None:
    _contains(run, node, part, 1, None, instance, place, found)


def _contains(
    run: Evaluation,
    node: SchemaNode,
    part: Any,
    least: float,
    most: float | None,
    instance: Any,
    place: Place,
    found: Findings,
) -> None:
    if not isinstance(instance, list):
        return
    child, fitting = node.part(part), 0
    for number, item in enumerate(instance):
        if run.fits(child, item):
            fitting += 1
            if node.draft.contains_evaluates:
                run.evaluated.items.add(number)
            if most is not None and fitting > most:
                found.add(Mismatch("maxContains", place, instance, node.schema, most))
                return
    if fitting < least:
        keyword = "minContains" if fitting else "contains"
        found.add(Mismatch(keyword, place, instance, node.schema, least, fitting))


# --- to what is left ------------------------------------------------------------------------------------------


def unevaluated_properties(
    run: Evaluation, node: SchemaNode, part: Any, instance: Any, place: Place, found: Findings
) -> None:
    seen = run.evaluated
    if not isinstance(instance, dict):
        return
    run.take(len(instance) >> 2)
    child = node.part(part)
    names = [name for name in instance if name not in seen.names and not run.fits(child, instance[name])]
    seen.names.update(instance)
    if names:
        found.add(Mismatch("unevaluatedProperties", place, instance, node.schema, part, names))


def unevaluated_items(
    run: Evaluation, node: SchemaNode, part: Any, instance: Any, place: Place, found: Findings
) -> None:
    seen = run.evaluated
    if not isinstance(instance, list) or seen.all_items:
        return
    child = node.part(part)
    left = [
        item
        for number, item in enumerate(instance)
        if number >= seen.first_items and number not in seen.items and not run.fits(child, item)
    ]
    seen.all_items = True
    if left:
        found.add(Mismatch("unevaluatedItems", place, instance, node.schema, part, left))
