"""The common base of all sections of the file, and the kinds of value a field can hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, get_args
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic.fields import FieldInfo

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


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(value: object) -> object:
    """The seconds that a text like ``2m`` or ``250ms`` names; anything but text is left as it is.

    Raises ValueError for text that is no duration.
    """
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise ValueError("must be seconds, or text such as 250ms, 10s or 2m")
    return float(found[1]) * _UNITS[found[2] or "s"]


class Section(BaseModel):
    """A mapping in the file: unknown keys are refused, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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

    @property
    def said(self) -> dict[str, Any]:
        """The fields that the file sets, in their order; null does not count."""
        values = {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }
        return {name: value for name, value in values.items() if value is not None}


def fields_by_key(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a section by their keys in the file; some keys are reserved names in Python."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


@dataclass(frozen=True)
class Spelled:
    """The name of a kind of value on the reference page."""

    kind: str


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


def _unswitched(value: object) -> object:
    """Convert false to ``off``: YAML 1.1 reads a bare ``off`` as false."""
    return "off" if value is False else value


def _network(value: object) -> object:
    try:
        return ip_network(value, strict=False) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("must be an address or a network such as 10.0.0.0/8") from None


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


def _header_name(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", value.strip()) is None:
        raise ValueError("must be the name of an HTTP header")
    return value.strip() if isinstance(value, str) else value


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), Spelled("seconds")]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False), Spelled("seconds, 0 allowed")]
Count = Annotated[int, Field(gt=0), Spelled("whole number above 0")]
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    Field(gt=0, allow_inf_nan=False),
    Spelled("seconds, or text such as `10s`"),
]
ByteSize = Annotated[int, BeforeValidator(parse_size), Field(gt=0), Spelled("byte size")]
ByteSizeOrZero = Annotated[int, BeforeValidator(parse_size), Field(ge=0), Spelled("byte size, 0 allowed")]
Port = Annotated[int, Field(ge=1, le=65535), Spelled("port")]
Text = Annotated[str, Field(min_length=1), Spelled("text")]
OptionalText = Annotated[str | None, BeforeValidator(_blank_is_null), Spelled("text or null")]
BlankIsNull = BeforeValidator(_blank_is_null)
TextList = Annotated[list[str], BeforeValidator(_listed), Spelled("list of text")]
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
