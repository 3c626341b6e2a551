"""Checks of arguments against a JSON Schema, which find all faults at once, and of formats that it names. Pure.

The schema may come from a stranger: nothing it refers to is fetched, and checking ends whatever the schema says. A
format takes a time that is linear in the text, of which no more than ``LONGEST`` characters are looked at.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

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
        """Return the judgement of a value, with at most MOST_FAULTS faults; with ``large`` also by patterns that take
        long to compile.

        Raises SchemaInvalid if the schema refers to something that it does not hold, OutOfSteps, and SchemaTooLarge.
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
        """Return the faults of a value; a value that takes more than STEPS has that as its fault.

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


# --- formats of texts --------------------------------------------------------------------------------------


LONGEST = 2048
"""Characters of a text in one of these formats; a longer one is in none."""

_DEEPEST = 64

Path = tuple[str | int, ...]

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOSTNAME = re.compile(rf"{_LABEL}(?:\.{_LABEL}){{0,126}}")
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(?:[Zz]|[+-]([0-9]{2}):([0-9]{2}))", re.ASCII
)
_DURATION = re.compile(
    r"P(?:[0-9]+W|(?=[0-9T])(?:[0-9]+Y)?(?:[0-9]+M)?(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+S)?)?)"
)


def _hostname(text: str) -> bool:
    return len(text) <= 253 and _HOSTNAME.fullmatch(text) is not None


def _email(text: str) -> bool:
    local, at, domain = text.rpartition("@")
    return bool(at) and len(local) <= 64 and _LOCAL.fullmatch(local) is not None and _hostname(domain)


def _uri(text: str) -> bool:
    if not text.isascii() or any(character <= " " or character in '<>"{}|\\^`' for character in text):
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.scheme) and (parts.port is None or parts.port >= 0)
    except ValueError:
        return False


def _uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def _ipv4(text: str) -> bool:
    try:
        return bool(IPv4Address(text).packed)
    except AddressValueError:
        return False


def _ipv6(text: str) -> bool:
    try:
        return "%" not in text and bool(IPv6Address(text).packed)
    except AddressValueError:
        return False


def _date(text: str) -> bool:
    found = _DATE.fullmatch(text)
    return found is not None and in_calendar(*map(int, found.groups()))


def in_calendar(year: int, month: int, day: int) -> bool:
    """Tell whether there is such a day; a year may be 0 (RFC 3339)."""
    return 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]


def _time(text: str) -> bool:
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    hour, minute, second, *zone = (int(digits or 0) for digits in found.groups())
    # A leap second is one at the end of a day, wherever that is.
    return hour < 24 and minute < 60 and second <= 60 and zone[0] < 24 and zone[1] < 60


def _date_time(text: str) -> bool:
    return len(text) > 11 and text[10] in "Tt" and _date(text[:10]) and _time(text[11:])


FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "date": _date,
    "date-time": _date_time,
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "email": _email,
    "hostname": _hostname,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "time": _time,
    "uri": _uri,
    "uuid": _uuid,
}
"""Whether a text is in a format, by JSON Schema's name of it (2020-12, Validation, 7.3)."""


def unformatted(schema: Any, value: Any, path: Path = ()) -> Iterator[tuple[Path, str, str]]:
    """The places within a value whose text is not in its format, each with the name of the format and the text.

    Only what the schema says of every value counts, through ``properties``, ``additionalProperties``, ``items``,
    ``prefixItems`` and ``allOf``; a format that is not known here is not checked.
    """
    if not isinstance(schema, Mapping) or len(path) > _DEEPEST:
        return
    if isinstance(value, str):
        fits = FORMATS.get(str(schema.get("format")))
        if fits is not None and not (len(value) <= LONGEST and fits(value)):
            yield path, str(schema["format"]), value
    elif isinstance(value, Mapping):
        properties = schema.get("properties")
        others = schema.get("additionalProperties")
        for name, member in value.items():
            declared = properties.get(name, others) if isinstance(properties, Mapping) else others
            yield from unformatted(declared, member, (*path, name))
    elif isinstance(value, list):
        first = schema.get("prefixItems")
        first = first if isinstance(first, Sequence) else ()
        for index, item in enumerate(value):
            within = first[index] if index < len(first) else schema.get("items")
            yield from unformatted(within, item, (*path, index))
    every = schema.get("allOf")
    for each in every if isinstance(every, list) else ():
        yield from unformatted(each, value, path)


def speaks_of_formats(schema: Any, depth: int = 0) -> bool:
    """Tell whether any part of a schema names a format that is checked here."""
    if depth > _DEEPEST:
        return False
    if isinstance(schema, Mapping):
        if schema.get("format") in FORMATS:
            return True
        return any(speaks_of_formats(part, depth + 1) for part in schema.values())
    return isinstance(schema, list) and any(speaks_of_formats(part, depth + 1) for part in schema)
