"""Checks of values against a JSON Schema, which find all faults at once, and the words for a fault: for models, for
programs, and for a reader of the first one only. Pure.

The schema may come from a stranger: nothing it refers to is fetched, and whoever asks says how much work it may make.
Programs read the library's words. Everything is short, whatever was sent and whatever the schema has: a long value is
called "The value", a long list is cut.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from adapter.rules.results import refusals
from adapter.rules.results.refusals import Fault
from adapter.rules.schema.cost import PARTS, STEPS, Cost, SchemaInvalid, SchemaTooLarge
from adapter.rules.text.events import shortened

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

_LONGEST_SENT = 80

MASK = "The value"
"""What a value is called in a message where it is long."""


def fault_of(error: ValidationError, schema: Any) -> Fault:
    """The fault that an error of the library is; ``schema`` is the whole one."""
    from jsonschema_rs import ValidationErrorKind as Kind

    path, kind = tuple(error.instance_path), error.kind
    keyword, message = _NAMES.get(kind.name, kind.name), message_of(error)
    match kind:
        case Kind.Required(name):
            expected = _expected(schema, error.schema_path[:-1], name)
            return refusals.missing((*path, name), expected, message)
        case Kind.AdditionalProperties(names):
            return refusals.unrecognized(path, names)
    # Only here: of one that lacks members or has too many, all of it would be made anew for each fault.
    sent = error.instance
    match kind:
        case Kind.Enum(options):
            return refusals.not_an_option(path, sent, options, keyword, message=message)
        case Kind.Constant(value):
            return refusals.not_an_option(path, sent, [value], keyword, message=message)
        case Kind.Format(name):
            problem, advice = f"Invalid {name}", f"Expected format: {name}."
            return Fault.of(keyword, path, problem, advice, sent=refusals.shown(sent), message=message)
    if types := _types(error):
        return refusals.wrong_type(path, sent, " or ".join(types), keyword, message)
    return Fault.of(keyword, path, message, sent=refusals.shown(sent), message=message)


_NAMES: Mapping[str, str] = {"falseSchema": "false"}


def message_of(error: ValidationError) -> str:
    """Return one line that says what is wrong."""
    text = error.message
    if MASK in text:
        shown = (
            json.dumps(error.instance, default=str) if _weight(error.instance, _LONGEST_SENT) >= 0 else MASK
        )
        text = text.replace(MASK, shown, 1) if len(shown) <= _LONGEST_SENT else text
    return refusals.one_line(text)


def _types(error: ValidationError) -> Sequence[str]:
    """Return the types that would fit, if only the type is wrong."""
    from jsonschema_rs import ValidationErrorKind as Kind

    match error.kind:
        case Kind.Type(types):
            return types
        case Kind.AnyOf(context) | Kind.OneOfNotValid(context):
            ways = [each for way in context for each in way]
            if all(
                isinstance(way.kind, Kind.Type) and way.instance_path == error.instance_path for way in ways
            ):
                return list(dict.fromkeys(name for way in ways for name in _types(way)))
    return ()


def _expected(schema: Any, place: Sequence[str | int], name: str) -> str:
    """The type of a member by the schema at a place within the whole one."""
    try:
        for part in (*place, "properties", name, "type"):
            schema = schema[part]
    except (LookupError, TypeError):
        return "any"
    types = [schema] if isinstance(schema, str) else schema
    return " or ".join(each for each in types if isinstance(each, str)) or "any"


def _weight(value: Any, left: int) -> int:
    """Return what is left of ``left`` characters after the value is written; less than 0 if the value is too long."""
    left -= 1
    if isinstance(value, str):
        return left - len(value)
    if isinstance(value, int):
        return left - (value.bit_length() >> 2)
    for part in (
        (*value, *value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        left = _weight(part, left)
        if left < 0:
            break
    return left


MOST_FAULTS = 100
"""So many are told of one call; whoever has made more is helped by no longer list."""

TOO_DEEP = "The arguments or the schema are nested too deeply to be checked."

FORMATS: Final = (
    *("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"),
)
"""The formats of texts that inputs of hosted tools may name."""

DRAFTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "http://json-schema.org/draft-04/schema": "Draft4Validator",
        "http://json-schema.org/draft-06/schema": "Draft6Validator",
        "http://json-schema.org/draft-07/schema": "Draft7Validator",
        "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
        "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    }
)
"""The library's classes by the URI of their meta-schema, without the ``#`` that may stand at its end."""

_LARGE_PATTERN = 1 << 21
_SMALL_PATTERN = 1 << 17
_MOST_PATTERNS = 50
"""Patterns of a schema that are left out because the engine does not know them, each of which is found by compiling."""

_BACKTRACKING = re.compile(r"\(\?<?[=!]|\\[1-9k]")

_SPEAKING_OF_MEMBERS = frozenset(
    (
        *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "extends"),
        *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"),
        *("dependentSchemas", "dependencies"),
    )
)
"""Keywords with which a schema may allow members beside those it names in ``properties``, or say that it does not."""


class Judgement(NamedTuple):
    """The faults of a value, unknown members last, and the number of steps that the check took at worst."""

    faults: Sequence[Fault]
    steps: int = 0


class Checker:
    """A compiled schema; see compile_schema. ``unjudged`` are the patterns that are not looked at, each with the
    reason.
    """

    def __init__(
        self, schema: Mapping[str, Any], cost: Cost, declared: frozenset[str] | None, compiled: Compiled
    ) -> None:
        self._schema = schema
        self._cost = cost
        self._declared = declared
        self._validator, self.unjudged = compiled

    def judged(self, value: Any, *, steps: int | None = STEPS) -> Judgement:
        """Return the judgement of a value, with at most MOST_FAULTS faults.

        Raises OutOfSteps before anything takes long; with None nothing is bounded here.
        """
        given = dict(value) if isinstance(value, Mapping) else value
        taken = 0 if steps is None else self._cost.steps(given, steps)
        try:
            found = self._found(given, steps)
        except ValueError:
            try:
                found = self._found(_spelled_out(given), steps)
            except (ValueError, RecursionError):
                # The library takes only so many levels.
                return Judgement([refusals.uncheckable(TOO_DEEP)], taken)
        faults = {(fault.path, fault.message): fault for fault in found}
        if self._declared is not None and isinstance(given, dict):
            unknown = [name for name in given if name not in self._declared]
            if unknown:
                undeclared = refusals.unrecognized((), unknown)
                faults[undeclared.path, undeclared.message] = undeclared
        ordered = sorted(faults.values(), key=lambda fault: fault.keyword == "additionalProperties")
        return Judgement(ordered, taken)

    def _found(self, value: Any, steps: int | None) -> Sequence[Fault]:
        if self._validator.is_valid(value):
            return ()
        if steps is not None:
            self._cost.tell(value, steps)
        if holds_infinity(value):
            value = _spelled_out(value)
        errors = islice(self._validator.iter_errors(value), MOST_FAULTS)
        return [fault_of(error, self._schema) for error in errors]


Compiled = tuple["Validator", Mapping[str, str]]


def compile_schema(
    schema: Mapping[str, Any],
    *,
    strict: bool = False,
    parts: int = PARTS,
    large: bool = True,
    formats: bool = False,
) -> Checker:
    """The checker of a schema, of draft 2020-12 unless its ``$schema`` names another that is known.

    ``strict`` refuses members of the arguments that the schema does not declare also where it does not say so; where
    it leaves open which there may be, they stay allowed. ``parts`` is how many it may have, ``large`` allows patterns
    that take long to compile, ``formats`` are checked too. Raises SchemaInvalid and SchemaTooLarge.
    """
    cost = Cost(schema, parts)
    compiled = _compiled(schema, large, formats)
    return Checker(schema, cost, _declared(schema) if strict else None, compiled)


def why_not(pattern: str) -> str | None:
    """The reason why a pattern is not judged; None for one that is."""
    return compile_schema({"pattern": pattern}).unjudged.get(pattern)


def _compiled(schema: Any, large: bool, formats: bool) -> Compiled:
    # Late: it is large, comes with an extra of the package, and few settings need it.
    import jsonschema_rs
    from jsonschema_rs import EmailOptions, RegexOptions, ValidationError, ValidationErrorKind

    named = schema.get("$schema") if isinstance(schema, dict) else None
    uri = named.removesuffix("#") if isinstance(named, str) else ""
    draft: type[Validator] = getattr(jsonschema_rs, DRAFTS.get(uri, "Draft202012Validator"))
    size = _LARGE_PATTERN if large else _SMALL_PATTERN
    unjudged: dict[str, str] = {}
    spelled_out = False
    while True:
        try:
            validator = draft(
                schema,
                pattern_options=RegexOptions(size_limit=size, dfa_size_limit=size),
                email_options=EmailOptions(allow_domain_literal=False, allow_display_text=False),
                validate_formats=formats,
                offline=True,
                mask=MASK,
            )
            return validator, unjudged
        except ValidationError as error:
            if not (isinstance(error.kind, ValidationErrorKind.Format) and error.kind.format == "regex"):
                raise _refusal(error) from None
            pattern = str(error.instance)
            schema = _without(schema, error.instance_path, pattern)
            if schema is None:
                raise _refusal(error) from None
            why = (
                "look-around or a back-reference" if _BACKTRACKING.search(pattern) else "invalid or too large"
            )
            if why.startswith("invalid") and not large:
                raise SchemaTooLarge from None
            unjudged[pattern] = why
            if len(unjudged) > _MOST_PATTERNS:
                raise SchemaInvalid(f"More than {_MOST_PATTERNS} patterns of it cannot be judged.") from None
        except ValueError as error:
            if spelled_out:
                raise SchemaInvalid(f"The schema is invalid: {error}") from None
            schema, spelled_out = _spelled_out(schema), True


def _refusal(error: ValidationError) -> SchemaInvalid:
    if error.kind.name == "$ref":
        return SchemaInvalid(f"The schema refers to a part that does not exist: {error.message}")
    place = shortened(".".join(shortened(str(part), 100) for part in error.instance_path), 200) or "its root"
    return SchemaInvalid(f"The schema is invalid at {place}: {message_of(error)}")


def _without(schema: Any, path: Sequence[str | int], pattern: str) -> Any:
    """The schema without this pattern at a place, None if it is not there; what it may speak of is not unknown then."""
    first, *rest = path
    for key in _keys(schema, first):
        part = schema[key]
        if not rest and part == pattern:
            return {name: each for name, each in schema.items() if name != key}
        # Drafts 6 and 7 name the place of all patterns.
        if len(rest) < 2 and key == "patternProperties" and isinstance(part, dict) and pattern in part:
            open_ = (key, "additionalProperties", "unevaluatedProperties")
            left = {name: each for name, each in part.items() if name != pattern}
            return {**{name: each for name, each in schema.items() if name not in open_}, key: left}
        made = _without(part, rest, pattern) if rest else None
        if made is not None:
            if isinstance(schema, list):
                return [*schema[:key], made, *schema[key + 1 :]]
            return {**schema, key: made}
    return None


def _keys(schema: Any, part: str | int) -> Sequence[Any]:
    """The keys that a part of a path may mean: in names that read as numbers (``1``, ``01``, ``+1``) the library sees
    that number.
    """
    if not isinstance(schema, dict):
        return [part] if isinstance(schema, list) and part in range(len(schema)) else []
    number = str(part).lstrip("0") if isinstance(part, int) else None
    return [name for name in schema if name == part or name.removeprefix("+").lstrip("0") == number]


def holds_infinity(value: Any, most: int | None = None) -> bool:
    """Tell whether the value holds a number that was beyond any float, such as 1e999, among its first ``most`` values;
    orjson writes it as null.
    """
    waiting = [value]
    for one in islice(waiting, most):
        if isinstance(one, float) and math.isinf(one):
            return True
        waiting += one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ()
    return False


def _spelled_out(value: Any) -> Any:
    """A value that the library takes: question marks for lone surrogates, decimals for numbers beyond all floats."""
    text = json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace")
    return json.loads(text, parse_constant=lambda name: Decimal("-1e999" if name[0] == "-" else "1e999"))


def _declared(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """The names of all members there may be, None where the schema speaks of members by other means than names."""
    if not _SPEAKING_OF_MEMBERS.isdisjoint(schema):
        return None
    if "properties" not in schema and "minProperties" in schema:
        # It asks for members and names none, so it means any.
        return None
    return frozenset(schema.get("properties", ())) | frozenset(schema.get("required", ()))
