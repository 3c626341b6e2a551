"""The JSON Schema of the settings file, for editors: keys with their descriptions, and the values that they take.

An editor must not mark a file that the adapter accepts. So each value may also be null or refer to a variable, and
values that may be written as text (durations, byte sizes, lists) may be.
"""

from __future__ import annotations

import json
from typing import Any

from adapter.settings.reference_page import all_sections, sentences
from adapter.settings.root import Settings
from adapter.settings.section import KIND

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_VARIABLE = r"\$\{[A-Za-z_]"
_DURATION = r"^\s*([0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*)+$"
_SIZE = r"^\s*[0-9]+\s*([KMGTkmgt][Ii]?)?[Bb]?\s*$"
_NUMBER = r"^\s*-?[0-9.]+\s*$"
_BOOLEAN = "^(true|false)$"

_ALSO = {
    ("UpstreamSettings", "transport"): ["http", "streamable-http", "streamablehttp"],
    ("Core", "log_level"): ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
}
"""Other spellings of words, which validators accept."""

_ANNOTATIONS = ("description", "default")
_DROPPED = frozenset((KIND, "title", "discriminator", "format", "writeOnly"))


def schema_text() -> str:
    """The schema as JSON, ending in one newline."""
    return json.dumps(schema(), ensure_ascii=False, indent=2) + "\n"


def schema() -> dict[str, Any]:
    """The schema of the whole file, of draft 2020-12."""
    raw = Settings.model_json_schema()
    for model in dict.fromkeys(all_sections(Settings)):
        section, told = raw if model is Settings else raw["$defs"][model.__name__], sentences(model)
        for key, value in section.get("properties", {}).items():
            # A key without a sentence of its own has that of its section.
            inner = raw["$defs"].get(value.get("$ref", "").rpartition("/")[2], {})
            value["description"] = told.get(key) or inner.get("description", "")
    sections = {name: _section(name, section) for name, section in raw.pop("$defs").items()}
    whole = _section("Settings", raw)
    return {"$schema": DIALECT, "title": "Settings of mcp-adapter", **whole, "$defs": sections}


def _section(name: str, raw: dict[str, Any]) -> dict[str, Any]:
    required = raw.get("required", ())
    properties = {
        key: _property(value, _ALSO.get((name, key), ()), required=key in required)
        for key, value in raw.get("properties", {}).items()
    }
    return {**{key: value for key, value in raw.items() if key not in _DROPPED}, "properties": properties}


def _property(raw: dict[str, Any], also: Any, *, required: bool) -> dict[str, Any]:
    """The schema of one value, which may be null if it has a default."""
    annotations = {key: raw[key] for key in _ANNOTATIONS if key in raw}
    forms = _forms({key: value for key, value in raw.items() if key not in _ANNOTATIONS})
    if also:
        forms.append({"enum": list(also)})
    if not required and {"type": "null"} not in forms:
        forms.append({"type": "null"})
    return {**annotations, **(forms[0] if len(forms) == 1 else {"anyOf": forms})}


def _forms(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """Every form in which the value of a schema may be written."""
    kind = str(raw.get(KIND, ""))
    choices = raw.get("anyOf") or raw.get("oneOf")
    if choices:
        forms = [form for choice in choices for form in _forms({KIND: kind, **choice} if kind else choice)]
        return [form for place, form in enumerate(forms) if form not in forms[:place]]
    found = {key: value for key, value in raw.items() if key not in _DROPPED}
    if isinstance(found.get("additionalProperties"), dict):
        found["additionalProperties"] = _whole(found["additionalProperties"])
    if isinstance(found.get("items"), dict):
        found["items"] = _whole(found["items"])
    return [found, *_as_text(found, kind)]


def _whole(raw: dict[str, Any]) -> dict[str, Any]:
    forms = _forms(raw)
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _as_text(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The other forms of a value that is no text."""
    match found.get("type"):
        case "array" if kind:
            # Text with commas, a variable, or one entry alone.
            return [found["items"], {"type": "string"}]
        case "boolean":
            return [_pattern(_BOOLEAN)]
        case "integer" | "number" if "byte size" in kind:
            return [_pattern(_NUMBER, _SIZE)]
        case "integer" | "number" if "duration" in kind:
            return [_pattern(_NUMBER, _DURATION)]
        case "integer" | "number":
            return [_pattern(_NUMBER)]
        case "string" if "enum" in found or "const" in found:
            # YAML 1.1 reads a bare off as false.
            off = [{"const": False}] if "off" in found.get("enum", ()) else []
            return [_pattern(_VARIABLE), *off]
    return []


def _pattern(*patterns: str) -> dict[str, Any]:
    return {"type": "string", "pattern": "|".join(dict.fromkeys((*patterns, _VARIABLE)))}
