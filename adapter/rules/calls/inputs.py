"""Inputs of a hosted tool: their JSON Schema, and the coercion of a call's arguments. Pure."""

from __future__ import annotations

import json
import math
import re
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

import orjson

from adapter.rules.results import refusals
from adapter.rules.results.refusals import Fault

InputType = Literal["string", "int", "float", "boolean", "datetime", "array", "object", "any"]
Scalar = str | int | float | bool
Value = Scalar | list[Any] | dict[str, Any] | None
"""A JSON value; of scalars those that an input is coerced to."""


class Unset(Enum):
    """The value of a default that is not given, so that "" and false can be defaults."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET

SCHEMA_TYPES: Final[Mapping[InputType, str]] = {
    "string": "string",
    "int": "integer",
    "float": "number",
    "boolean": "boolean",
    "datetime": "string",
    "array": "array",
    "object": "object",
    "any": "any",
}
"""The word that refusals have for each type, JSON Schema's own but for ``any``."""

SCALARS: Final[frozenset[InputType]] = frozenset(("string", "int", "float", "boolean", "datetime"))
"""The types that arguments are coerced to. What is of another is taken as it comes."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input as a configuration declares it.

    ``default`` and the members of ``enum`` are coerced as an argument would be, once; a null default is none.
    ``keywords`` are what else JSON Schema is to say of it; whoever takes the inputs as a whole checks them. Raises
    ValueError with a sentence for a default or a member that is not of the type, or not in the enum.
    """

    type: InputType
    description: str = ""
    optional: bool = False
    default: object = UNSET
    enum: tuple[object, ...] | None = None
    keywords: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.type not in SCHEMA_TYPES:
            raise ValueError(f"'{self.type}' is not a type: use one of {', '.join(SCHEMA_TYPES)}")
        if self.enum is not None:
            object.__setattr__(self, "enum", tuple(_COERCIONS[self.type](member) for member in self.enum))
        if self.default is None:
            object.__setattr__(self, "default", UNSET)
        elif self.default is not UNSET:
            object.__setattr__(self, "default", self.accepted(self.default))

    @property
    def required(self) -> bool:
        """Tell whether it is neither optional nor has a default; "" is a default too."""
        return not self.optional and self.default is UNSET

    @property
    def structured(self) -> bool:
        """Tell whether its values may be arrays or objects."""
        return self.type not in SCALARS

    def accepted(self, value: object) -> Any:
        """Return the value in this type. Raises ValueError with the expected type; never quotes the value."""
        scalar: Any = _COERCIONS[self.type](value)
        if self.enum is not None and scalar not in self.enum:
            raise ValueError(f"expected one of {', '.join(json.dumps(member) for member in self.enum)}")
        return scalar


class InputsRefused(ValueError):
    """The arguments do not fit: ``str`` tells of the ``first`` fault, ``faults`` lists all of them."""

    def __init__(self, faults: Sequence[Fault], first: Fault | None = None) -> None:
        super().__init__((first or faults[0]).sentence)
        self.faults = faults


def input_schema(inputs: Mapping[str, Input]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of an object with these inputs and no others."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _property(declared) for name, declared in inputs.items()},
    }
    if required := [name for name, declared in inputs.items() if declared.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def read(inputs: Mapping[str, Input], arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return the values of the declared inputs that fit, and the faults of the others."""
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, declared in inputs.items():
        sent = arguments.get(name)
        if sent is None:
            if declared.required:
                faults.append(refusals.missing((name,), SCHEMA_TYPES[declared.type]))
            elif not isinstance(declared.default, Unset):
                # A copy, for whoever gets it may change what is within.
                default = declared.default
                values[name] = default if declared.type in SCALARS else orjson.loads(orjson.dumps(default))
            continue
        try:
            values[name] = declared.accepted(sent)
        except ValueError as reason:
            text = f"type validation failed: {reason}"
            if declared.enum is not None:
                fault = refusals.not_an_option((name,), sent, declared.enum, "type", why=text)
            else:
                advice = f"Expected type: {SCHEMA_TYPES[declared.type]}."
                fault = Fault.of("type", (name,), text, advice, sent=refusals.shown(sent), why=text)
            faults.append(fault)
    return values, faults


def _property(declared: Input) -> dict[str, Any]:
    described: dict[str, Any] = {} if declared.type == "any" else {"type": SCHEMA_TYPES[declared.type]}
    described.update(declared.keywords)
    if declared.type == "datetime":
        described["format"] = "date-time"
    if declared.description:
        described["description"] = declared.description
    if declared.enum is not None:
        described["enum"] = list(declared.enum)
    if declared.default is not UNSET:
        described["default"] = declared.default
    return described


# --- one value of one type ------------------------------------------------------------------------------------

_INT64 = range(-(2**63), 2**63)
"""What every database has an integer for."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_BOOLEANS: Mapping[str, bool] = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_DATETIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?: ([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"|T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(?:Z|[+-]([0-9]{2}):([0-9]{2})))?"
)


def _string(value: object) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            # A lone surrogate, which JSON can spell and no database can hold.
            raise ValueError("expected string, got one that is not valid Unicode") from None
        return value
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    raise _unlike("string", value)


def _int(value: object) -> int:
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif (isinstance(value, float) and value.is_integer()) or (
        isinstance(value, str) and _INTEGER.fullmatch(value)
    ):
        number = int(value)
    if number is None:
        raise _unlike("int", value)
    if number not in _INT64:
        raise ValueError("expected int of at most 64 bits")
    return number


def _float(value: object) -> float:
    number = math.nan
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        try:
            number = float(value)  # type: ignore[arg-type]  # either a number or a text that spells one
        except OverflowError:
            number = math.inf
    if not math.isfinite(number):
        raise _unlike("float", value)
    return number


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _BOOLEANS:
        return _BOOLEANS[value]
    raise _unlike("boolean", value)


def _datetime(value: object) -> str:
    found = _DATETIME.fullmatch(value) if isinstance(value, str) else None
    if found is None or not _is_time(*(int(digits) if digits else 0 for digits in found.groups())):
        raise _unlike("datetime", value)
    return found.string


def _is_time(year: int, month: int, day: int, *clock: int) -> bool:
    """``clock`` is hour, minute and second of either form, then the zone's hour and minute."""
    return (
        1 <= month <= 12
        and 1 <= day <= monthrange(year, month)[1]
        and all(part < end for part, end in zip(clock, (24, 60, 60, 24, 60, 60, 24, 60), strict=True))
    )


def _structure(value: object) -> Any:
    """Return the value as it came: the schema judges its type."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Halves of characters, and integers of which no database has any, at whatever depth.
        raise ValueError("expected valid Unicode and numbers of at most 64 bits") from None
    return value


_COERCIONS: Final[Mapping[InputType, Callable[[object], Any]]] = {
    "string": _string,
    "int": _int,
    "float": _float,
    "boolean": _boolean,
    "datetime": _datetime,
    **dict.fromkeys(("array", "object", "any"), _structure),
}


def _unlike(wanted: InputType, value: object) -> ValueError:
    match value:
        case bool():
            got = "boolean"
        case str():
            got = "string" if wanted == "string" else "a string that spells none"
        case int() | float():
            got = "a number that is none"
        case list() | tuple():
            got = "array"
        case Mapping():
            got = "object"
        case _:
            got = type(value).__name__
    return ValueError(f"expected {wanted}, got {got}")
