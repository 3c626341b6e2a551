"""Settings files of MCP clients as text: a server's entry is put in, and everything else keeps its meaning.

Pure.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any

import yaml

from adapter.rules.clients.mcp_clients import Entry, Format

_INDENT = re.compile(r"^(\t+| +)\S", re.MULTILINE)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class CannotEdit(Exception):
    """A file that cannot be edited without risk; ``str(error)`` says why."""


def with_entry(text: str, kind: Format, keys: Sequence[str], name: str, entry: Entry) -> str:
    """Return the file with the entry ``name`` below ``keys``, in place of one of that name. Raises CannotEdit.

    The result is read again and compared, so that nothing else changes.
    """
    old = _read(text, kind)
    parent = old
    for key in keys:
        if parent.get(key) is None:
            parent[key] = {}
        parent = parent[key]
        if not isinstance(parent, dict):
            raise CannotEdit(f"{key} holds no servers in it")
    if parent.get(name) == entry:
        return text
    replaces = name in parent
    parent[name] = entry
    if kind == "json":
        edited = _json(old, text)
    elif replaces:
        raise CannotEdit(f"it has another server called {name}. Remove that one, or choose another --name")
    elif kind == "toml":
        edited = f"{text.rstrip()}\n\n{_toml([*keys, name], entry)}".lstrip()
    else:
        edited = _with_yaml_entry(text, keys[0], name, entry)
    if not _says(edited, kind, old):
        raise CannotEdit("its layout is not known")
    return edited


def entry_text(kind: Format, keys: Sequence[str], name: str, entry: Entry) -> str:
    """The entry alone, as it stands in a file that has nothing else."""
    return with_entry("", kind, keys, name, entry)


def _read(text: str, kind: Format) -> dict[str, Any]:
    try:
        if kind == "json":
            value = json.loads(text) if text.strip() else {}
        elif kind == "toml":
            value = tomllib.loads(text)
        else:
            value = yaml.safe_load(text) or {}
    except (ValueError, RecursionError, yaml.YAMLError):
        comments = " or has comments" if kind == "json" else ""
        raise CannotEdit(f"it is no {kind.upper()}{comments}") from None
    if not isinstance(value, dict):
        raise CannotEdit("it is not a file of settings")
    return value


def _says(text: str, kind: Format, value: dict[str, Any]) -> bool:
    try:
        return _read(text, kind) == value
    except CannotEdit:
        return False


def _json(value: dict[str, Any], like: str) -> str:
    """The value as JSON, indented as the first indented line is."""
    found = _INDENT.search(like)
    indent = found[1] if found else "  "
    return json.dumps(value, indent=indent, ensure_ascii=False) + "\n"


def _toml(keys: Sequence[str], entry: Entry) -> str:
    # A string of JSON is one of TOML too, and so is a list of them.
    head = ".".join(key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False) for key in keys)
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join([f"[{head}]", *lines, ""])


def _with_yaml_entry(text: str, key: str, name: str, entry: Entry) -> str:
    """The text with the entry as the first one below the top-level ``key``, whose others may be indented anyhow."""
    lines = text.splitlines(keepends=True)
    place = next((number for number, line in enumerate(lines) if line.startswith(f"{key}:")), None)
    if place is None:
        block = _yaml({key: {name: entry}}, "")
        return f"{text.rstrip()}\n{block}" if text.strip() else block
    below = _INDENT.match(lines[place + 1]) if place + 1 < len(lines) else None
    block = _yaml({name: entry}, below[1] if below else "  ")
    return "".join([*lines[:place], f"{key}:\n", block, *lines[place + 1 :]])


def _yaml(value: dict[str, Any], indent: str) -> str:
    lines = yaml.safe_dump(value, sort_keys=False, allow_unicode=True).splitlines(keepends=True)
    return "".join(indent + line for line in lines)
