"""The words for a mismatch: for models, for programs, and for a reader of the first one only. Pure.

Everything is short, whatever was sent and whatever the schema has: a long value is called "The value", a long list is
cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from adapter.rules.results import refusals
from adapter.rules.results.refusals import AsShown, Issue
from adapter.rules.schema.evaluation import Mismatch
from adapter.rules.text.events import shortened

_LONGEST = 300
_LONGEST_SENT = 80
_LONGEST_POINTER = 1_000

SchemaPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with arguments: of a missing member the path is its own.

    ``keyword`` is the schema's, ``message`` what programs read. ``issue`` is for models, ``sentence`` for whoever reads
    of the first fault only.
    """

    keyword: str
    path: SchemaPath
    message: str
    issue: Issue
    sentence: str

    @property
    def pointer(self) -> str:
        """The path as a JSON Pointer."""
        parts = (shortened(str(part), _LONGEST_POINTER) for part in self.path)
        pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
        return shortened(pointer, _LONGEST_POINTER)

    @property
    def error(self) -> dict[str, str]:
        """The fault as the HTTP API has it: ``path`` (a JSON Pointer), ``message`` and ``keyword``."""
        return {"path": self.pointer, "message": self.message, "keyword": self.keyword}

    def written(self) -> dict[str, Any]:
        """The fault as JSON, for ``read_fault``."""
        issue = self.issue
        sent = None if issue.sent is refusals.MISSING else str(issue.shown)
        return {
            "keyword": self.keyword,
            "path": [
                shortened(part, _LONGEST_POINTER) if isinstance(part, str) else part for part in self.path
            ],
            "message": self.message,
            "issue": [issue.message, sent, issue.advice],
            "sentence": self.sentence,
        }


def read_fault(written: Mapping[str, Any]) -> Fault:
    """The fault that was written."""
    path = tuple(written["path"])
    message, sent, advice = written["issue"]
    issue = Issue(path, message, refusals.MISSING if sent is None else AsShown(sent), advice)
    return Fault(written["keyword"], path, written["message"], issue, written["sentence"])


def fault_of(mismatch: Mismatch) -> Fault:
    """The fault that a mismatch is."""
    path, keyword = mismatch.path, mismatch.keyword
    if keyword == "required":
        issue = refusals.missing((*path, mismatch.detail), _expected(mismatch.schema, mismatch.detail))
        return _of(keyword, issue, message_of(mismatch), f"required input '{issue.field}' is missing")
    if keyword == "additionalProperties":
        return unrecognized(path, mismatch.detail)
    issue = _issue(mismatch, path, keyword)
    return _of(keyword, issue, message_of(mismatch), f"type validation failed: {issue.message}")


def unrecognized(path: SchemaPath, names: Sequence[str]) -> Fault:
    """Members that may not be there."""
    issue = refusals.unrecognized(path, names)
    first = shortened(".".join(shortened(str(part), _LONGEST) for part in (*path, names[0])), _LONGEST)
    text = f"unknown input field '{first}'"
    return _of(
        "additionalProperties", issue, _cut(_extras("Additional properties", names)), text, field=first
    )


def uncheckable(sentence: str) -> Fault:
    """Arguments that nobody can judge, and why not."""
    return _of("schema", Issue((), sentence), sentence, sentence)


def _of(keyword: str, issue: Issue, message: str, why: str, field: str | None = None) -> Fault:
    sentence = f"input validation failed: validation error for field '{field or issue.field}': {why}"
    return Fault(keyword, issue.path, message, issue, sentence)


def _issue(mismatch: Mismatch, path: SchemaPath, keyword: str) -> Issue:
    sent = mismatch.instance
    if keyword == "enum":
        return refusals.not_an_option(path, sent, mismatch.value)
    if keyword == "const":
        return refusals.not_an_option(path, sent, [mismatch.value])
    if types := _types(mismatch, keyword):
        return refusals.wrong_type(path, sent, " or ".join(types))
    return Issue(path, message_of(mismatch), sent)


def _types(mismatch: Mismatch, keyword: str) -> list[str]:
    """Return the types that would fit, if only the type is wrong."""
    if keyword == "type":
        return _listed(mismatch.value)
    if keyword in ("anyOf", "oneOf") and all(
        way.keyword == "type" and way.place is None for way in mismatch.ways
    ):
        return list(dict.fromkeys(name for way in mismatch.ways for name in _listed(way.value)))
    return []


def _expected(schema: Any, name: str) -> str:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    declared = properties.get(name) if isinstance(properties, Mapping) else None
    return " or ".join(_listed(declared.get("type") if isinstance(declared, Mapping) else None)) or "any"


def _listed(types: Any) -> list[str]:
    if isinstance(types, str):
        return [types]
    return [each for each in types if isinstance(each, str)] if isinstance(types, list) else []


# --- messages -------------------------------------------------------------------------------------------------


def message_of(mismatch: Mismatch) -> str:
    """Return one line that says what is wrong."""
    words = _WORDS.get(mismatch.keyword)
    if words is not None:
        return _cut(f"{_value(mismatch.instance)} {words.format(_repr(mismatch.value))}")
    return _cut(_particular(mismatch))


_WORDS: Mapping[str, str] = {
    "enum": "is not one of {}",
    "minimum": "is less than the minimum of {}",
    "maximum": "is greater than the maximum of {}",
    "exclusiveMinimum": "is less than or equal to the minimum of {}",
    "exclusiveMaximum": "is greater than or equal to the maximum of {}",
    "multipleOf": "is not a multiple of {}",
    "pattern": "does not match {}",
    "uniqueItems": "has non-unique elements",
    "anyOf": "is not valid under any of the given schemas",
    "not": "should not be valid under {}",
    "contains": "does not contain items matching the given schema",
}
_TOO_SMALL: Mapping[str, str] = {
    **dict.fromkeys(("minLength", "minItems"), "is too short"),
    "minProperties": "does not have enough properties",
}
_TOO_LARGE: Mapping[str, str] = {
    **dict.fromkeys(("maxLength", "maxItems"), "is too long"),
    "maxProperties": "has too many properties",
}


def _particular(mismatch: Mismatch) -> str:
    value, detail = mismatch.value, mismatch.detail
    match mismatch.keyword:
        case "type":
            return f"{_value(mismatch.instance)} is not of type {', '.join(map(repr, _listed(value)))}"
        case "const":
            return f"{_repr(value)} was expected"
        case "required":
            return f"{_repr(detail)} is a required property"
        case "dependentRequired" | "dependencies":
            return f"{_repr(detail[0])} is a dependency of {_repr(detail[1])}"
        case "oneOf":
            which = "is not valid under any of the given schemas"
            if detail:
                which = f"is valid under each of {', '.join(map(_repr, reversed(detail)))}"
            return f"{_value(mismatch.instance)} {which}"
        case "maxContains":
            return f"Too many items match the given schema (expected at most {_repr(value)})"
        case "minContains":
            return (
                f"Too few items match the given schema (expected at least {_repr(value)} "
                f"but only {detail} matched)"
            )
        case "false":
            return f"False schema does not allow {_value(mismatch.instance, 'the value')}"
    return _of_size_or_rest(mismatch)


def _of_size_or_rest(mismatch: Mismatch) -> str:
    keyword, value, detail = mismatch.keyword, mismatch.value, mismatch.detail
    if keyword in _TOO_SMALL:
        words = "should be non-empty" if value == 1 else _TOO_SMALL[keyword]
        return f"{_value(mismatch.instance)} {words}"
    if keyword in _TOO_LARGE:
        words = "is expected to be empty" if value == 0 else _TOO_LARGE[keyword]
        return f"{_value(mismatch.instance)} {words}"
    if keyword == "items":
        first, rest = detail
        shown = _value(rest if len(rest) != 1 else rest[0], "the value")
        items = "items" if first != 1 else "item"
        return f"Expected at most {first} {items} but found {len(rest)} extra: {shown}"
    if keyword == "additionalItems":
        return _extras("Additional items", detail)
    if keyword == "unevaluatedItems":
        return _extras("Unevaluated items", detail)
    if value is False:
        return _extras("Unevaluated properties", sorted(detail))
    listed = _repr_all(detail)
    verb = "was" if len(detail) == 1 else "were"
    return f"Unevaluated properties are not valid under the given schema ({listed} {verb} unevaluated and invalid)"


def _extras(what: str, extras: Sequence[Any]) -> str:
    verb = "was" if len(extras) == 1 else "were"
    return f"{what} are not allowed ({_repr_all(extras)} {verb} unexpected)"


def _repr_all(values: Iterable[Any]) -> str:
    return ", ".join(map(_repr, islice(values, _LONGEST // 4)))


def _value(value: Any, otherwise: str = "The value") -> str:
    """Return the value that was sent if it is short, else ``otherwise``."""
    if _weight(value, _LONGEST_SENT) < 0:
        return otherwise
    text = repr(value)
    return text if len(text) <= _LONGEST_SENT else otherwise


def _repr(value: Any) -> str:
    """Return a value of the schema or a name, cut to the length of a line."""
    if isinstance(value, str):
        return repr(shortened(value, _LONGEST))
    return repr(value) if _weight(value, _LONGEST) >= 0 else "…"


def _weight(value: Any, left: int) -> int:
    """Return what is left of ``left`` characters after the value is written; less than 0 if the value is too long."""
    left -= 1
    if isinstance(value, str):
        return left - len(value)
    if isinstance(value, int):
        return left - (value.bit_length() >> 2)
    if isinstance(value, dict):
        for name, member in value.items():
            left = _weight(member, left - len(name))
            if left < 0:
                break
    elif isinstance(value, list):
        for item in value:
            left = _weight(item, left)
            if left < 0:
                break
    return left


def _cut(text: str) -> str:
    return shortened(text.partition("\n")[0], _LONGEST)
