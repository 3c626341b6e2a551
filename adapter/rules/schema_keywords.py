"""JSON Schema's keywords of which a hostile schema or value could make work without end, with an end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jsonschema import validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator

from adapter.rules.text.patterns import fits

REFERENCES = 50_000
"""References that are followed for one value: far more than honest values need, and less than a second's."""

Keyword = Callable[[Validator, Any, Any, Mapping[str, Any]], Iterator[ValidationError]]


class TooMuchWork(Exception):
    """Checking a value takes more than it is worth."""


class BoundedKeywords:
    """The keywords of ``draft``, a validator class, for one schema.

    ``begin`` is called before each value. Afterwards following references raises TooMuchWork at some point, and
    patterns that could take too long count as fulfilled: the tool itself has the last word on them.
    """

    def __init__(self, draft: type[Validator]) -> None:
        self._left = 0
        bounded: dict[str, Keyword] = {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
        }
        for name in ("$ref", "$dynamicRef", "$recursiveRef"):
            if (follow := draft.VALIDATORS.get(name)) is not None:
                bounded[name] = self._counted(follow)
        self.draft: type[Validator] = validators.extend(draft, bounded)  # type: ignore[no-untyped-call]  # its stub is bare

    def begin(self) -> None:
        """Another value is checked."""
        self._left = REFERENCES

    def _counted(self, follow: Keyword) -> Keyword:
        def keyword(
            validator: Validator, reference: Any, instance: Any, schema: Mapping[str, Any]
        ) -> Iterator[ValidationError]:
            self._left -= 1
            if self._left < 0:
                raise TooMuchWork
            yield from follow(validator, reference, instance, schema) or ()

        return keyword


def unknown_members(instance: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """The members of an object that neither ``properties`` nor ``patternProperties`` speaks of."""
    declared = schema.get("properties") or {}
    patterns = schema.get("patternProperties") or {}
    return [
        name
        for name in instance
        if name not in declared and all(fits(pattern, name) is False for pattern in patterns)
    ]


def unrecognized_text(names: list[str]) -> str:
    """The message for members that may not be there."""
    listed = ", ".join(repr(name) for name in names)
    verb = "was" if len(names) == 1 else "were"
    return f"Additional properties are not allowed ({listed} {verb} unexpected)"


def _pattern(
    validator: Validator, pattern: str, instance: Any, _: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and fits(pattern, instance) is False:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, schema in patterns.items():
        for name, value in instance.items():
            if fits(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    unknown = unknown_members(instance, schema)
    if isinstance(allowed, Mapping):
        for name in unknown:
            yield from validator.descend(instance[name], allowed, path=name)
    elif allowed is False and unknown:
        yield ValidationError(unrecognized_text(unknown))
