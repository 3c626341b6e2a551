"""One value judged by one schema, within bounds on steps and depth: schema and value may be hostile. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adapter.rules.text.expressions import Expression, ExpressionInvalid
from adapter.rules.text.patterns import PatternTooLarge, pattern_of

if TYPE_CHECKING:
    from adapter.rules.schema.documents import SchemaNode, SchemaResource

DEEPEST = 150
"""Schemas within schemas for one value: more than people nest, and fewer than Python's stack holds."""

Place = tuple["Place", str | int] | None
"""A place within the value: that of what it is in, and its name or number there; None is the value itself."""


class OutOfBounds(Exception):
    """Judging takes more than it may."""


class OutOfSteps(OutOfBounds):
    """The steps that were allowed are taken."""


class TooDeep(OutOfBounds):
    """Schema or value are nested more deeply than DEEPEST."""


class Mismatch:
    """One mismatch: the value at ``place`` does not fit ``keyword`` of ``schema``, which has ``value``.

    ``keyword`` is "false" for the schema that nothing fits. ``detail`` is what the keyword adds; ``ways`` are the
    mismatches of each alternative, if there are few.
    """

    __slots__ = ("detail", "instance", "keyword", "place", "schema", "value", "ways")

    def __init__(
        self, keyword: str, place: Place, instance: Any, schema: Any, value: Any, detail: Any = None
    ) -> None:
        self.keyword = keyword
        self.place = place
        self.instance = instance
        self.schema = schema
        self.value = value
        self.detail = detail
        self.ways: Sequence[Mismatch] = ()

    @property
    def path(self) -> tuple[str | int, ...]:
        parts: list[str | int] = []
        place = self.place
        while place is not None:
            place, part = place
            parts.append(part)
        return tuple(reversed(parts))


class Findings:
    """The mismatches that were found, up to the number that the caller wants."""

    __slots__ = ("_most", "all")

    def __init__(self, most: int) -> None:
        self._most = most
        self.all: list[Mismatch] = []

    @property
    def enough(self) -> bool:
        return len(self.all) >= self._most

    def add(self, mismatch: Mismatch) -> None:
        if len(self.all) < self._most:
            self.all.append(mismatch)


class Evaluated:
    """The members and items of one value that some keyword has evaluated, for ``unevaluated…``."""

    __slots__ = ("all_items", "all_names", "first_items", "items", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.items: set[int] = set()
        self.first_items = 0
        self.all_names = False
        self.all_items = False

    def add(self, other: Evaluated) -> None:
        self.names |= other.names
        self.items |= other.items
        self.first_items = max(self.first_items, other.first_items)
        self.all_names |= other.all_names
        self.all_items |= other.all_items


class Subject:
    """One value and the schema that it is judged by: the work of every keyword."""

    __slots__ = ("found", "instance", "node", "place", "run")

    def __init__(
        self, run: Evaluation, node: SchemaNode, instance: Any, place: Place, found: Findings
    ) -> None:
        self.run = run
        self.node = node
        self.instance = instance
        self.place = place
        self.found = found

    def miss(self, keyword: str, value: Any, detail: Any = None) -> None:
        """Note that the value is not what ``keyword`` asks for with ``value``; see Mismatch."""
        self.found.add(Mismatch(keyword, self.place, self.instance, self.node.schema, value, detail))

    def within(self, part: Any) -> bool:
        """Judge the same value by one more schema; see Evaluation.within."""
        run = self.run
        # Not through Evaluation.within where that does nothing else: schemas are nested, and each frame counts.
        judge = run.within if run.tracks else run.judge
        return judge(self.node.part(part), self.instance, self.place, self.found)

    def tried(self, part: Any, way: Findings) -> bool:
        """Tell whether the same value fits one more schema; its mismatches are noted in ``way`` only."""
        run = self.run
        return (run.within if run.tracks else run.judge)(self.node.part(part), self.instance, None, way)

    def child(self, part: Any, name: str | int) -> bool:
        """Judge a member or an item; tell whether there may be more mismatches."""
        self.run.apply(self.node.part(part), self.instance[name], (self.place, name), self.found)
        return not self.found.enough


class Evaluation:
    """The judging of one value. ``steps`` is the number of steps that it may take; a step is some microseconds. With
    ``large`` patterns may be compiled that take long.

    ``unjudged`` are the patterns that were not checked, with the reasons. ``tracks``: the schema has ``unevaluated…``
    keywords.
    """

    def __init__(self, steps: int, *, tracks: bool, large: bool) -> None:
        self.evaluated = Evaluated()
        self.unjudged: dict[str, str] = {}
        self._patterns: dict[str, Expression] = {}
        self.scope: list[SchemaResource] = []
        self.tracks = tracks
        self._steps = steps
        self._large = large
        self._depth = 0

    @property
    def left(self) -> int:
        """Steps that may still be taken."""
        return self._steps

    def take(self, steps: int) -> None:
        """Count work that a keyword is about to do. Raises OutOfSteps."""
        self._steps -= steps
        if self._steps < 0:
            raise OutOfSteps

    def apply(self, node: SchemaNode, instance: Any, place: Place, findings: Findings) -> bool:
        """Judge a value by a schema of its own, and tell whether it fits. Raises OutOfBounds."""
        outer = self.evaluated
        if self.tracks:
            self.evaluated = Evaluated()
        fits = self.judge(node, instance, place, findings)
        self.evaluated = outer
        return fits

    def within(self, node: SchemaNode, instance: Any, place: Place, findings: Findings) -> bool:
        """Judge the value of the current schema by one more schema; members that this one evaluates count there too."""
        if not self.tracks:
            return self.judge(node, instance, place, findings)
        outer = self.evaluated
        self.evaluated = inner = Evaluated()
        fits = self.judge(node, instance, place, findings)
        self.evaluated = outer
        if fits:
            outer.add(inner)
            self.take(len(inner.names) + len(inner.items))
        return fits

    def fits(self, node: SchemaNode, instance: Any) -> bool:
        """Tell whether a value fits the schema, without the reasons."""
        return self.apply(node, instance, None, Findings(1))

    def judge(self, node: SchemaNode, instance: Any, place: Place, findings: Findings) -> bool:
        """Judge a value by the keywords of one schema. Raises OutOfBounds."""
        self._steps -= 1
        self._depth += 1
        if self._depth > DEEPEST:
            raise TooDeep
        before = len(findings.all)
        enters = self.scope[-1] is not node.resource
        if enters:
            self.scope.append(node.resource)
        subject = Subject(self, node, instance, place, findings)
        for check, value in node.checks:
            self._steps -= 1
            if self._steps < 0:
                raise OutOfSteps
            check(subject, value)
            if findings.enough:
                break
        if node.schema is False:
            findings.add(Mismatch("false", place, instance, False, False))
        if enters:
            self.scope.pop()
        self._depth -= 1
        return len(findings.all) == before

    def occurs(self, source: str, text: str) -> bool | None:
        """Tell whether a pattern occurs in a text; None if the pattern cannot be judged. Raises OutOfSteps."""
        pattern = self._patterns.get(source)
        if pattern is None:
            if source in self.unjudged:
                return None
            pattern = self._compiled(source)
        if pattern is None:
            return None
        # Matching takes at worst the size of the pattern for each character.
        self.take(3 + (pattern.size * len(text) >> 9))
        return pattern.occurs_in(text)

    def _compiled(self, source: str) -> Expression | None:
        self.take(50 + (len(source) >> 1))
        try:
            pattern = self._patterns[source] = pattern_of(source, large=self._large)
        except PatternTooLarge:
            raise OutOfSteps from None
        except ExpressionInvalid as invalid:
            self.unjudged[source] = str(invalid)
            return None
        self.take(pattern.size >> 2)
        return pattern
