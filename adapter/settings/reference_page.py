"""The reference of the settings, generated from the models: a page with key, type, default and description of each, and
the JSON Schema of the file, for editors.

An editor must not mark a file that the adapter accepts. So each value may also be null or refer to a variable, and
values that may be written as text (durations, byte sizes, lists) may be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from adapter.settings.root import Settings
from adapter.settings.section import ENTRY_TAGS, KIND, Spelled, fields_by_key

MASK = "***"
_SECRET = str(SecretStr("any"))
"""What stands for the value of each secret when settings become plain values."""

_SECRET_MAPPINGS = ("static_headers", "headers", "env", "options", "policy")
_URLS = ("url", "endpoint")


def masked(settings: Settings) -> dict[str, Any]:
    """The effective settings as plain values, with tokens, passwords, auth policies, header values and URLs masked."""
    shown = settings.model_dump(mode="json", by_alias=True)
    shown["state_persistence"]["disk"]["local_path"] = str(settings.state_path)
    _mask(shown)
    return shown


def _mask(tree: Any) -> None:
    for key, value in list(tree.items()) if isinstance(tree, dict) else enumerate(tree):
        if value == _SECRET or (value and key == "sha256"):
            tree[key] = MASK
        elif key in _SECRET_MAPPINGS and isinstance(value, dict):
            tree[key] = dict.fromkeys(value, MASK)
        elif key in _URLS and isinstance(value, str):
            tree[key] = without_credentials(value)
        elif isinstance(value, dict | list):
            _mask(value)


def without_credentials(url: str) -> str:
    """The URL with its user and the values of its query masked."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    query = urlencode([(name, MASK) for name, _ in parse_qsl(parts.query, keep_blank_values=True)], safe="*")
    netloc = f"{MASK}@{host}" if "@" in parts.netloc else host
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models inside an annotation: of a list, of an optional value, of a choice between several."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from sections_in(part)


def all_sections(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The section and all that are in it, some of them several times."""
    yield section
    for field in section.model_fields.values():
        for inner in sections_in(field.annotation):
            yield from all_sections(inner)


def sentences(section: type[BaseModel]) -> Mapping[str, str]:
    """The sentence of each key of a section: the text below its field in the source, unless the field has its own."""
    written: dict[str, str] = {}
    for base in reversed(section.__mro__):
        written |= _written_in(base.__module__).get(base.__name__, {})
    fields = section.model_fields.items()
    return {field.alias or name: field.description or written.get(name, "") for name, field in fields}


@cache
def _written_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """The text below each field of the classes in a module."""
    # Late: only documentation is made of sources.
    import ast
    import inspect

    if not module.startswith("adapter.settings."):
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    found: dict[str, dict[str, str]] = {each.name: {} for each in classes}
    for each in classes:
        for field, below in pairwise(each.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[each.name][name] = " ".join(text.split())
    return found


def without_tags(location: Sequence[str | int]) -> tuple[str | int, ...]:
    """The location as in the file, without the names of models that pydantic adds."""
    steps: list[str | int] = []
    for step in location:
        chosen_by_type = len(steps) >= 2 and steps[-2] == "adapters" and isinstance(steps[-1], int)
        if step not in ENTRY_TAGS and not (
            chosen_by_type and step in ("upload_consumer", "artifact_producer")
        ):
            steps.append(step)
    return tuple(steps)


def keys_at(location: Sequence[str | int]) -> set[str]:
    """The known keys of the section at a location, of all its variants if there are several."""
    sections: list[type[BaseModel]] = [Settings]
    named = False
    for step in location:
        if isinstance(step, int):
            continue
        if named:
            # The entry of a mapping: the user chooses its name.
            named = False
            continue
        known = [fields_by_key(section) for section in sections]
        fields = [keys[step] for keys in known if step in keys]
        sections = [found for field in fields for found in sections_in(field.annotation)]
        named = any(get_origin(field.annotation) is dict for field in fields)
    return {key for section in sections for key in fields_by_key(section)}


def nearest_key(location: Sequence[str | int]) -> str:
    """A message about an unknown key at the end of a location, with the most similar known key."""
    # Late: only a wrong key asks for it.
    from difflib import get_close_matches

    *section, key = location
    known = sorted(keys_at(section))
    likely = get_close_matches(str(key), known, n=1, cutoff=0)
    return f"is not a known key; the nearest is {likely[0]}" if likely else "is not a known key"


_HEAD = """# Settings

`mcp-adapter config reference` generates this page from the settings models. Change the models, not this page.

Settings are one YAML file. Any string may contain `${VAR}` or `${VAR:-default}`. A byte size is a number, or text
such as `10Mi` (10 · 1024²) or `5MB` (5 · 1000²). A duration is a number of seconds, or text with units (`d`, `h`, `m`,
`s`, `ms`) such as `30s`, `2m`, `1h30m` or `500ms`, also if the name of its key ends with `_seconds`.

Flags override environment variables such as `ADAPTER_CORE__PORT=9000`, which override the file. In flags and variables
a list is written as `a, b` or as JSON.

An unknown key is an error, and so is a value that needs a feature that is not available yet.
`mcp-adapter check` prints the problems, and `mcp-adapter check --effective` all settings with secrets masked. Editors
check the file with `mcp-adapter config schema` ([command-line.md](command-line.md)).
"""
_WORDS = {bool: "true/false", int: "whole number", float: "number", str: "text", SecretStr: "secret"}


_ENTRIES: dict[Any, str] = {list: "[]", dict: ".NAME"}


def reference() -> str:
    """The whole page as Markdown, ending in one newline."""
    parts = [_HEAD]
    shown: dict[type[BaseModel], str] = {}
    for name, field in Settings.model_fields.items():
        path = f"{name}{_ENTRIES.get(get_origin(field.annotation), '')}"
        for section in sections_in(field.annotation):
            parts.extend(_tables(path, section, shown))
    return "\n".join(parts)


def _tables(
    path: str, section: type[BaseModel], shown: dict[type[BaseModel], str], variant: str = ""
) -> Iterator[str]:
    """The table of one section, then those of the sections inside it that are not ``shown`` already."""
    rows = [
        f"## `{path}`{variant}",
        "",
        (section.__doc__ or "").strip(),
        "",
        "| key | type | default | |",
        "|---|---|---|---|",
    ]
    inner: list[tuple[str, type[BaseModel], str]] = []
    told = sentences(section)
    for name, field in fields_by_key(section).items():
        nested = list(sections_in(field.annotation))
        below = f"{path}.{name}{_ENTRIES.get(get_origin(field.annotation), '')}"
        variants = len(nested) > 1
        unseen = [model for model in nested if model not in shown]
        shown |= dict.fromkeys(unseen, below)
        inner.extend((below, model, _variant(model) if variants else "") for model in unseen)
        kind = _section_kind(field, shown[nested[0]]) if nested else _kind(field)
        default = "" if nested else _default(field)
        # The table of a section says what it is for.
        rows.append(f"| `{name}` | {kind} | {default} | {told[name]} |")
    yield "\n".join(rows) + "\n"
    for below, model, name_of_variant in inner:
        yield from _tables(below, model, shown, name_of_variant)


def _variant(model: type[BaseModel]) -> str:
    (word,) = get_args(model.model_fields["type"].annotation)
    return f" with `type: {word}`"


def _section_kind(field: FieldInfo, table: str) -> str:
    beside = _spelled_in(field.metadata)
    return f"{beside} or section `{table}`" if beside else f"section `{table}`"


def _kind(field: FieldInfo) -> str:
    return _spelled_in(field.metadata) or _named(field.annotation)


def _spelled_in(metadata: Any) -> str | None:
    return next((item.kind for item in metadata if isinstance(item, Spelled)), None)


def _named(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _spelled_in(arguments[1:]) or _named(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{word}`" for word in arguments)
    if origin is list:
        return f"list of {_named(arguments[0])}"
    if origin is dict:
        return "mapping of text to text"
    if origin in (Union, UnionType):
        named = [_named(part) for part in arguments if part is not NoneType]
        return " or ".join([*named, "null"] if NoneType in arguments else named)
    return _WORDS.get(annotation, "path")


def _default(field: FieldInfo) -> str:
    if isinstance(field.json_schema_extra, dict):
        return str(field.json_schema_extra["shown"])
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "null"
    if value == "":
        return '`""`'
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if _spelled_in(field.metadata) == "byte size" and value % 1024**2 == 0:
        return f"`{value // 1024**2}Mi`"
    if isinstance(value, list):
        return "`[" + ", ".join(f'"{entry}"' for entry in value) + "]`"
    return f"`{value}`"


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
