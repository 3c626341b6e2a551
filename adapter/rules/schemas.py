"""Whether a call's arguments are what a JSON Schema says, and everything that is wrong with them at once. Pure.

The schema may be a stranger's: nothing it refers to is fetched, and checking ends whatever it says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from adapter.rules import refusals
from adapter.rules.refusals import Issue

# The checker of schemas takes five megabytes, so it is imported when the first schema is compiled.
if TYPE_CHECKING:
    from jsonschema.exceptions import SchemaError, ValidationError
    from jsonschema.protocols import Validator

    from adapter.rules.schema_keywords import BoundedKeywords

MOST_FAULTS = 100
"""So many are told of one call; whoever has made more is helped by no longer list."""

_LONGEST = 300
_LONGEST_SENT = 80

_SPEAKING_OF_MEMBERS = frozenset(
    (
        *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "extends"),
        *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"),
        *("dependentSchemas", "dependencies"),
    )
)
"""Keywords with which a schema may allow members beside those it names in ``properties``, or say that it does not."""

Path = tuple[str | int, ...]


class SchemaInvalid(ValueError):
    """A schema that nothing can be checked by; ``str`` is a sentence that says why."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with arguments: of a missing member the path is its own.

    ``keyword`` is the schema's, ``message`` what a checker of schemas says. ``issue`` is for models, ``sentence`` for
    whoever reads of the first fault only.
    """

    keyword: str
    path: Path
    message: str
    issue: Issue
    sentence: str

    @property
    def pointer(self) -> str:
        """The path as a JSON Pointer."""
        return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in self.path)


class Checker:
    """A compiled schema. ``declared`` are the only members that arguments may have, None: the schema's own affair."""

    def __init__(
        self, validator: Validator, keywords: BoundedKeywords, declared: frozenset[str] | None
    ) -> None:
        self._validator = validator
        self._keywords = keywords
        self._declared = declared

    def __repr__(self) -> str:
        members = "any members" if self._declared is None else f"{len(self._declared)} members"
        return f"<Checker of {members}>"

    def faults(self, arguments: Any) -> list[Fault]:
        """Everything that is wrong, members that are unknown last; at most MOST_FAULTS.

        Raises SchemaInvalid where the schema turns out to refer to what it does not hold.
        """
        from referencing.exceptions import Unresolvable

        from adapter.rules.schema_keywords import TooMuchWork

        self._keywords.begin()
        given = dict(arguments) if isinstance(arguments, Mapping) else arguments
        try:
            errors = list(islice(self._validator.iter_errors(given), MOST_FAULTS))
        except (RecursionError, OverflowError, TooMuchWork):
            return [_uncheckable()]
        except Unresolvable as nowhere:
            raise SchemaInvalid(_cut(f"The schema refers to what it does not hold: {nowhere.ref}")) from None
        except Exception as error:
            # What else jsonschema raises for a schema that its own rules let pass, such as a malformed URL in it.
            raise SchemaInvalid(f"The schema cannot be used: {type(error).__name__}.") from error
        found = {(fault.path, fault.message): fault for fault in map(_fault, errors)}
        if (undeclared := self._undeclared(given)) is not None:
            found[undeclared.path, undeclared.message] = undeclared
        return sorted(found.values(), key=lambda fault: fault.keyword == "additionalProperties")

    def issues(self, arguments: Any) -> list[Issue]:
        """The faults as models are told of them. Raises as ``faults``."""
        return [fault.issue for fault in self.faults(arguments)]

    def errors(self, arguments: Any) -> list[dict[str, str]]:
        """The faults as ``path`` (a JSON Pointer), ``message`` and ``keyword``. Raises as ``faults``."""
        return [
            {"path": fault.pointer, "message": fault.message, "keyword": fault.keyword}
            for fault in self.faults(arguments)
        ]

    def _undeclared(self, given: Any) -> Fault | None:
        if self._declared is None or not isinstance(given, dict):
            return None
        unknown = [name for name in given if name not in self._declared]
        return _unrecognized((), unknown) if unknown else None


def compile_schema(schema: Mapping[str, Any], *, strict: bool = False) -> Checker:
    """The checker of a schema, of draft 2020-12 unless its ``$schema`` names another that is known.

    ``strict`` refuses members of the arguments that the schema does not declare also where it does not say so; where
    it leaves open which there may be, they stay allowed. Raises SchemaInvalid.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    from adapter.rules.schema_keywords import BoundedKeywords

    whole = dict(schema)
    try:
        draft = validator_for(whole, default=Draft202012Validator)
        # Not the check of formats: patterns are written for other engines than Python's.
        draft.check_schema(whole, format_checker=None)  # type: ignore[call-arg]  # the stubs' protocol lags behind
        keywords = BoundedKeywords(draft)
        validator = keywords.draft(whole, registry=Registry())
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path)) or "its root"
        raise SchemaInvalid(_cut(f"The schema is invalid at {where}: {_message(error)}")) from None
    except RecursionError:
        raise SchemaInvalid("The schema is nested too deeply.") from None
    except Exception as error:
        # A $schema that is no text, and whatever else is too odd for the checker of schemas itself.
        raise SchemaInvalid(f"The schema cannot be used: {type(error).__name__}.") from error
    return Checker(validator, keywords, _declared(whole) if strict else None)


def _declared(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """The names of all members there may be, None where the schema speaks of members by other means than names."""
    if not _SPEAKING_OF_MEMBERS.isdisjoint(schema):
        return None
    if "properties" not in schema and "minProperties" in schema:
        # It asks for members and names none, so it means any.
        return None
    return frozenset(_object(schema.get("properties"))) | frozenset(_listed(schema.get("required")))


# --- one fault ------------------------------------------------------------------------------------------------


def _fault(error: ValidationError) -> Fault:
    from adapter.rules.schema_keywords import unknown_members

    path, keyword = tuple(error.absolute_path), str(error.validator or "false")
    if keyword == "required" and (name := _missing_name(error)) is not None:
        issue = refusals.missing((*path, name), _expected(error.schema, name))
        return _of(keyword, issue, _message(error), f"required input '{issue.field}' is missing")
    if keyword == "additionalProperties" and isinstance(error.schema, Mapping):
        return _unrecognized(path, unknown_members(_object(error.instance), error.schema))
    issue = _issue(error, path, keyword)
    return _of(keyword, issue, _message(error), f"type validation failed: {issue.message}")


def _issue(error: ValidationError, path: Path, keyword: str) -> Issue:
    sent = error.instance
    if keyword == "enum" and isinstance(error.validator_value, list):
        return refusals.not_an_option(path, sent, error.validator_value)
    if keyword == "const":
        return refusals.not_an_option(path, sent, [error.validator_value])
    if types := _types(error, keyword):
        return refusals.wrong_type(path, sent, " or ".join(types))
    return Issue(path, _message(error), sent)


def _types(error: ValidationError, keyword: str) -> list[str]:
    """The types that would do, where it is the type and nothing else that is wrong."""
    if keyword == "type":
        return _listed(error.validator_value)
    options = error.context if keyword in ("anyOf", "oneOf") else []
    if all(each.validator == "type" and not each.relative_path for each in options):
        return list(dict.fromkeys(name for each in options for name in _listed(each.validator_value)))
    return []


def _unrecognized(path: Path, names: list[str]) -> Fault:
    from adapter.rules.schema_keywords import unrecognized_text

    issue = refusals.unrecognized(path, names)
    first = ".".join(map(str, (*path, names[0])))
    text = f"unknown input field '{first}'"
    return _of("additionalProperties", issue, _cut(unrecognized_text(names)), text, field=first)


def _uncheckable() -> Fault:
    text = "The arguments are nested too deeply, or too large, to be checked."
    return _of("schema", Issue((), text), text, text)


def _of(keyword: str, issue: Issue, message: str, why: str, field: str | None = None) -> Fault:
    sentence = f"input validation failed: validation error for field '{field or issue.field}': {why}"
    return Fault(keyword, issue.path, message, issue, sentence)


def _missing_name(error: ValidationError) -> str | None:
    """The member that is missing, which the checker names in its message only."""
    named = error.validator_value if isinstance(error.validator_value, list) else []
    return next((name for name in named if error.message == f"{name!r} is a required property"), None)


def _expected(schema: Any, name: str) -> str:
    declared = _object(_object(schema).get("properties")).get(name)
    return " or ".join(_listed(_object(declared).get("type"))) or "any"


def _listed(types: Any) -> list[str]:
    return [types] if isinstance(types, str) else [each for each in _array(types) if isinstance(each, str)]


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _array(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _message(error: ValidationError | SchemaError) -> str:
    """The checker's own words, in which a long value does not drown the rest."""
    sent = repr(error.instance)
    message = error.message.replace(sent, "The value", 1) if len(sent) > _LONGEST_SENT else error.message
    return _cut(message)


def _cut(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
