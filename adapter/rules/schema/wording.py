"""The words for a mistake: for models, for programs, and for a reader of the first one only. Pure.

Programs read the library's words. Everything is short, whatever was sent and whatever the schema has: a long value is
called "The value", a long list is cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from adapter.rules.results import refusals
from adapter.rules.results.refusals import AsShown, Issue
from adapter.rules.text.events import shortened

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

_LONGEST = 300
_LONGEST_SENT = 80
_LONGEST_POINTER = 1_000

MASK = "The value"
"""What a value is called in a message where it is long."""

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


def fault_of(error: ValidationError, schema: Any) -> Fault:
    """The fault that an error of the library is; ``schema`` is the whole one."""
    from jsonschema_rs import ValidationErrorKind as Kind

    path, kind = tuple(error.instance_path), error.kind
    message = message_of(error)
    match kind:
        case Kind.Required(name):
            issue = refusals.missing((*path, name), _expected(schema, error.schema_path[:-1], name))
            return _of("required", issue, message, f"required input '{issue.field}' is missing")
        case Kind.AdditionalProperties(names):
            return unrecognized(path, names)
        case Kind.Enum(options):
            issue = refusals.not_an_option(path, error.instance, options)
        case Kind.Constant(value):
            issue = refusals.not_an_option(path, error.instance, [value])
        case Kind.Format(name):
            issue = Issue(path, f"Invalid {name}", error.instance, f"Expected format: {name}.")
        case _:
            types = _types(error)
            issue = (
                refusals.wrong_type(path, error.instance, " or ".join(types))
                if types
                else Issue(path, message, error.instance)
            )
    return _of(_NAMES.get(kind.name, kind.name), issue, message, f"type validation failed: {issue.message}")


_NAMES: Mapping[str, str] = {"falseSchema": "false"}


def message_of(error: ValidationError) -> str:
    """Return one line that says what is wrong."""
    text = error.message
    if MASK in text:
        shown = (
            json.dumps(error.instance, default=str) if _weight(error.instance, _LONGEST_SENT) >= 0 else MASK
        )
        text = text.replace(MASK, shown, 1) if len(shown) <= _LONGEST_SENT else text
    return _cut(text)


def unrecognized(path: SchemaPath, names: Sequence[str]) -> Fault:
    """Members that may not be there."""
    issue = refusals.unrecognized(path, names)
    first = shortened(".".join(shortened(str(part), _LONGEST) for part in (*path, names[0])), _LONGEST)
    text = f"unknown input field '{first}'"
    listed = ", ".join(f"'{shortened(name, _LONGEST)}'" for name in islice(names, _LONGEST // 4))
    verb = "was" if len(names) == 1 else "were"
    message = _cut(f"Additional properties are not allowed ({listed} {verb} unexpected)")
    return _of("additionalProperties", issue, message, text, field=first)


def uncheckable(sentence: str) -> Fault:
    """Arguments that nobody can judge, and why not."""
    return _of("schema", Issue((), sentence), sentence, sentence)


def _of(keyword: str, issue: Issue, message: str, why: str, field: str | None = None) -> Fault:
    sentence = f"input validation failed: validation error for field '{field or issue.field}': {why}"
    return Fault(keyword, issue.path, message, issue, sentence)


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


def _cut(text: str) -> str:
    return shortened(text.partition("\n")[0], _LONGEST)
