"""A check of arguments against a JSON Schema that finds all their faults at once. Pure.

The schema may come from a stranger: nothing it refers to is fetched, and checking ends whatever the schema says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from adapter.rules.schema.documents import SchemaDocument
from adapter.rules.schema.evaluation import Evaluation, Findings, OutOfSteps, TooDeep
from adapter.rules.schema.wording import Fault, fault_of, uncheckable, unrecognized

MOST_FAULTS = 100
"""So many are told of one call; whoever has made more is helped by no longer list."""

PARTS = 200_000
"""Parts of a schema that are looked at for anybody: about a second's."""

STEPS = 2_000_000
"""Steps of one judgement: about two seconds' at worst."""

TOO_DEEP = "The arguments or the schema are nested too deeply to be checked."

_SPEAKING_OF_MEMBERS = frozenset(
    (
        *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "extends"),
        *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"),
        *("dependentSchemas", "dependencies"),
    )
)
"""Keywords with which a schema may allow members beside those it names in ``properties``, or say that it does not."""


class Judgement(NamedTuple):
    """The faults of a value, unknown members last; the patterns that were not checked, with the reason for each; and
    the number of steps that the check took.
    """

    faults: Sequence[Fault]
    unjudged: Mapping[str, str]
    steps: int = 0


class Checker:
    """A compiled schema. ``declared`` are the only members that arguments may have, None: the schema's own affair."""

    def __init__(self, document: SchemaDocument, declared: frozenset[str] | None) -> None:
        self._document = document
        self._declared = declared

    def __repr__(self) -> str:
        members = "any members" if self._declared is None else f"{len(self._declared)} members"
        return f"<Checker of {members}>"

    @property
    def patterns(self) -> Sequence[str]:
        """All patterns that stand in the schema."""
        return tuple(self._document.patterns)

    def judged(self, value: Any, *, steps: int = STEPS, large: bool = True) -> Judgement:
        """Everything that is wrong, at most MOST_FAULTS; with ``large`` patterns too that take long to compile.

        Raises SchemaInvalid where the schema turns out to refer to what it does not hold, OutOfSteps, and
        SchemaTooLarge.
        """
        given = dict(value) if isinstance(value, Mapping) else value
        run = Evaluation(steps, tracks=self._document.tracks, large=large)
        run.scope.append(self._document.root.resource)
        findings = Findings(MOST_FAULTS)
        try:
            run.apply(self._document.root, given, None, findings)
            undeclared = self._undeclared(given, run)
        except (TooDeep, RecursionError):
            return Judgement([uncheckable(TOO_DEEP)], run.unjudged, steps - run.left)
        found = {(fault.path, fault.message): fault for fault in map(fault_of, findings.all)}
        if undeclared is not None:
            found[undeclared.path, undeclared.message] = undeclared
        ordered = sorted(found.values(), key=lambda fault: fault.keyword == "additionalProperties")
        return Judgement(ordered, run.unjudged, steps - run.left)

    def faults(self, value: Any) -> Sequence[Fault]:
        """The same without the patterns; a value that takes more than STEPS has that for its fault.

        Raises SchemaInvalid.
        """
        try:
            return self.judged(value).faults
        except OutOfSteps:
            return [uncheckable(f"Checking the arguments needs more than {STEPS} steps.")]

    def _undeclared(self, value: Any, run: Evaluation) -> Fault | None:
        if self._declared is None or not isinstance(value, dict):
            return None
        run.take(len(value) >> 2)
        unknown = [name for name in value if name not in self._declared]
        return unrecognized((), unknown) if unknown else None


def compile_schema(schema: Mapping[str, Any], *, strict: bool = False, parts: int = PARTS) -> Checker:
    """The checker of a schema, of draft 2020-12 unless its ``$schema`` names another that is known.

    ``strict`` refuses members of the arguments that the schema does not declare also where it does not say so; where
    it leaves open which there may be, they stay allowed. ``parts`` is how many it may have. Raises SchemaInvalid and
    SchemaTooLarge.
    """
    return Checker(SchemaDocument(schema, parts), _declared(schema) if strict else None)


def _declared(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """The names of all members there may be, None where the schema speaks of members by other means than names."""
    if not _SPEAKING_OF_MEMBERS.isdisjoint(schema):
        return None
    if "properties" not in schema and "minProperties" in schema:
        # It asks for members and names none, so it means any.
        return None
    return frozenset(schema.get("properties", ())) | frozenset(schema.get("required", ()))
