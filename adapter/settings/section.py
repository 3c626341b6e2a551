"""The base of all sections of the file, the kinds of value that a field can hold, and the problems of settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated, Any, NamedTuple, Self, TypeVar, get_args, get_type_hints
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

_SIZE = re.compile(r"\s*+(\d++)\s*+(?:([kmgt])(i?))?b?\s*+", re.IGNORECASE)
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(value: object) -> object:
    """The number of bytes that a text like ``10Mi`` or ``5 MB`` names; anything but text is left as it is.

    Raises ValueError for text that is no byte size.
    """
    if isinstance(value, bool):
        raise ValueError("must be a byte size such as 10Mi, 5MB or 1048576")
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    if found is None:
        raise ValueError("must be a byte size such as 10Mi, 5MB or 1048576")
    digits, unit, binary = found.groups()
    base = 1024 if binary else 1000
    return int(digits) * (base ** _POWER[unit.lower()] if unit else 1)


# Without the (?!) Python before 3.11.5 would take "1s0" for a duration (CPython issue 106052).
_DURATION = re.compile(r"(?:[0-9]++(?:\.[0-9]++)?\s*+(?:ms|[smhd])\s*+|(?!))++")
_PART = re.compile(r"(?<![0-9.])([0-9.]++)\s*+([a-z]++)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NO_DURATION = "must be seconds, or text such as 250ms, 30s, 2m or 1h30m"


def parse_duration(value: object) -> object:
    """The seconds that a text like ``2m``, ``1h30m``, ``250ms`` or ``60`` names; a number is left as it is.

    Raises ValueError for text that is no duration, and for true and false.
    """
    if isinstance(value, bool):
        raise ValueError(_NO_DURATION)
    if not isinstance(value, str):
        return value
    text = value.strip()
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    try:
        return float(text)
    except ValueError:
        raise ValueError(_NO_DURATION) from None


T = TypeVar("T", bound="Section")


class Section(BaseModel):
    """A mapping in the file: unknown keys are refused, and nothing changes after loading.

    The sentence that pages and editors show of a key stands below its field.
    """

    # A section is validated as a part of the file only, so no section needs a validator of its own.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _null_means_default(cls, data: Any) -> Any:
        """Drop keys without a value, which then have their default, unless null is a valid value."""
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or cls._takes_null(key)}

    @classmethod
    def _takes_null(cls, key: str) -> bool:
        field = fields_by_key(cls).get(key)
        return field is None or type(None) in get_args(field.annotation)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (sentence := next(self._contradictions(), None)) is not None:
            raise ValueError(sentence)
        return self

    def _contradictions(self) -> Iterator[str]:
        """Yield a sentence for values of the section that do not go together. The first one refuses it."""
        yield from ()

    @property
    def said(self) -> dict[str, Any]:
        """The fields that the file sets, in their order; null does not count."""
        values = {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }
        return {name: value for name, value in values.items() if value is not None}

    def overridden(self, *others: Section) -> Self:
        """This section with the values that the others set; the last one wins."""
        update: dict[str, Any] = {}
        for other in others:
            update |= other.said
        return self.model_copy(update=update)


def fields_by_key(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a section by their keys in the file; some keys are reserved names in Python."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def overriding(section: type[Section], place: str) -> Callable[[type[T]], type[T]]:
    """Return the decorator that gives a section the fields of ``section``, each null by default.

    ``place`` is the path of ``section`` in the file, such as ``core.upstream_ping``.
    """
    hints = get_type_hints(section, include_extras=True)
    fields: dict[str, Any] = {
        name: (
            hints[name] | None,
            Field(default=None, description=f"Overrides `{place}.{name}` here."),
        )
        for name in section.model_fields
    }

    def build(override: type[T]) -> type[T]:
        return create_model(
            override.__name__,
            __base__=override,
            __doc__=override.__doc__,
            __module__=override.__module__,
            **fields,
        )

    return build


KIND = "x-kind"
"""The member of a JSON Schema that says the kind of a value in words."""


@dataclass(frozen=True)
class Spelled:
    """The name of a kind of value on the reference page."""

    kind: str

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema with KIND: validators, which say what else a file may hold, are not in pydantic's own."""
        return {**handler(core), KIND: self.kind}


def _blank_is_null(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


def _listed(value: object) -> object:
    """Split text from an environment variable: ``a, b`` is a list of two."""
    if isinstance(value, str):
        return [entry.strip() for entry in value.split(",") if entry.strip()]
    return value


def _alone(value: object) -> object:
    """Convert one entry to a list; unlike ``_listed``, it does not split at commas."""
    return [value] if isinstance(value, str | dict) else value


AS_TEXT, AS_SECTION = ENTRY_TAGS = ("as text", "as section")
"""Tags of entries that may be text or a section; no key of the file contains a space."""


def _entry_kind(value: object) -> str:
    return AS_SECTION if isinstance(value, dict | Section) else AS_TEXT


def _switched_on(value: object) -> object:
    """Convert true to ``on``, which YAML 1.1 reads as true."""
    return "on" if value is True else value


def _unswitched(value: object) -> object:
    """Convert false to ``off``: YAML 1.1 reads a bare ``off`` as false."""
    return "off" if value is False else value


def _network(value: object) -> object:
    try:
        return ip_network(value, strict=False) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("must be an address or a network such as 10.0.0.0/8") from None


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _http_url(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", text):
        raise ValueError("must be an http:// or https:// URL with a host")
    return text


def _path(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = "/" + value.strip().strip("/")
    if text == "/":
        raise ValueError("must be a path below /, such as /mcp/browser")
    segments = text.split("/")[1:]
    if any(segment in ("", ".", "..") for segment in segments) or re.search(r"[?#%{}\\\s]", text):
        raise ValueError("must be a plain path: no empty, . or .. segment, no blank and none of ? # % { } \\")
    return text


def _scheme(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if re.fullmatch(r"[a-z][a-z0-9+.-]*://", text) is None:
        raise ValueError("must be a URI scheme that ends with ://")
    return text


def _id(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]*", text, re.IGNORECASE) is None:
        raise ValueError("must begin with a letter or digit and contain only letters, digits, _ and -")
    return text


def _header_name(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", value.strip()) is None:
        raise ValueError("must be the name of an HTTP header")
    return value.strip() if isinstance(value, str) else value


def hosts(example: str) -> AfterValidator:
    """The check of a list of hosts; ``example`` is the name of one in a domain."""

    def check(values: list[str] | None) -> list[str] | None:
        for value in values or []:
            if "/" in value or "*" in value:
                name = f"{example}.example.com"
                raise ValueError(f"{value!r} is not a host: write {name} or {name}:8443")
        return values

    return AfterValidator(check)


Seconds = Annotated[
    float, BeforeValidator(parse_duration), Field(gt=0, allow_inf_nan=False), Spelled("duration")
]
SecondsOrZero = Annotated[
    float, BeforeValidator(parse_duration), Field(ge=0, allow_inf_nan=False), Spelled("duration, 0 allowed")
]
Count = Annotated[int, Field(gt=0), Spelled("whole number above 0")]
ByteSize = Annotated[int, BeforeValidator(parse_size), Field(gt=0), Spelled("byte size")]
Port = Annotated[int, Field(ge=1, le=65535), Spelled("port")]
Text = Annotated[str, Field(min_length=1), Spelled("text")]
OptionalText = Annotated[str | None, BeforeValidator(_blank_is_null), Spelled("text or null")]
BlankIsNull = BeforeValidator(_blank_is_null)
TextList = Annotated[list[str], BeforeValidator(_listed), Spelled("list of text")]
Id = Annotated[str, BeforeValidator(_id), Spelled("text")]
HeaderName = Annotated[str, BeforeValidator(_header_name), Spelled("header name")]
HeaderNames = Annotated[list[HeaderName], BeforeValidator(_listed), Spelled("list of header names")]
Network = Annotated[IPv4Network | IPv6Network, BeforeValidator(_network), Spelled("network")]
Networks = Annotated[list[Network], BeforeValidator(_listed), Spelled("list of networks")]
HttpUrl = Annotated[str, BeforeValidator(_http_url), Spelled("http(s) URL")]
UrlPath = Annotated[str, BeforeValidator(_path), Spelled("path")]
UriScheme = Annotated[str, BeforeValidator(_scheme), Spelled("URI scheme")]
Listed = BeforeValidator(_listed)
ByKindOfEntry = Discriminator(_entry_kind)
OneIsAList = BeforeValidator(_alone)
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), Spelled("text")]
Entries = Annotated[list[Line], OneIsAList, Spelled("text, or list of text")]
CodeReference = Annotated[Line | None, BeforeValidator(_blank_is_null), Spelled("`file.py#function` or null")]
OffWord = BeforeValidator(_unswitched)
OnWord = BeforeValidator(_switched_on)


# --- problems ---------------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """One message about one place, such as ``servers[1].upstream.url``; an empty path is the whole file."""

    path: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}: {self.sentence}" if self.path else self.sentence


class SettingsError(Exception):
    """The settings cannot be used. ``str(error)`` has one line per problem, without secrets."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type[SettingsError], tuple[tuple[Problem, ...]]]:
        return SettingsError, (self.problems,)


def spelled(location: Iterable[str | int]) -> str:
    """``("servers", 1, "id")`` as people write it: ``servers[1].id``."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path


def traced(problem: Problem, files: Mapping[str, str]) -> Problem:
    """The problem at the place where people wrote what is wrong.

    ``files`` says which file stands behind a place in the tree: ``servers[0].tools.define[2].use`` may be the
    ``use`` of ``tools/pay/config.yaml``.
    """
    for place, file in files.items():
        rest = problem.path.removeprefix(place)
        if rest == "":
            return Problem(file, problem.sentence)
        if rest != problem.path and rest[0] in ".[ ":
            return Problem(f"{file}: {rest.lstrip('. ')}", problem.sentence)
    return problem
