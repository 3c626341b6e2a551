"""Settings files of MCP clients as text: a server's entry is put in or taken out, and every other byte stays. Pure.

JSON is read as people write it, with comments and commas at the end.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any

import yaml

from adapter.rules.clients.mcp_clients import Entry, Format
from adapter.wire.scan import CLOSE_OBJECT, OPEN_OBJECT, Member, byte, end_of_value, members, skip_space

_COMMENT = re.compile(rb'("(?:[^"\\]++|\\.)*+"?+)|//[^\r\n]*+|/\*.*?(?:\*/|\Z)', re.DOTALL)
_NO_BREAK = re.compile(rb"[^\r\n]")
_LAST_COMMA = re.compile(rb'("(?:[^"\\]++|\\.)*+"?+)|,(?=\s*+[}\]])', re.DOTALL)
_INDENT_BYTES = re.compile(rb"^([ \t]+)[^\s]", re.MULTILINE)
_REST_OF_LINE = re.compile(rb"[ \t]*+(?:\r?\n|//)")

MOST_OF_A_NAME = 20
"""Members of one name that are taken out: each takes a look at the whole text."""


def without_comments(text: bytes) -> bytes:
    """The text with spaces in place of each comment and of each comma behind the last value: plain JSON, in which
    everything has its place, also its line.
    """
    return _LAST_COMMA.sub(_blank, _COMMENT.sub(_blank, text))


def _blank(found: re.Match[bytes]) -> bytes:
    return found[0] if found[1] is not None else _NO_BREAK.sub(b" ", found[0])


def with_member(text: bytes, keys: Sequence[str], value: Any) -> bytes:
    """Return the text with ``value`` at ``keys``, whether something is there or not.

    Objects on the way are made where none or null is. Raises ValueError where something else is in the way, or for a
    text that is no object.
    """
    seen = without_comments(text)
    start, member = skip_space(seen, 0), None
    for step, key in enumerate(keys):
        if byte(seen, start) != OPEN_OBJECT:
            if member is None or seen[start : member.value_end] != b"null":
                raise ValueError(f"{keys[step - 1] if step else 'it'} is no object")
            return _replaced(text, member, _nested(keys[step:], value))
        member = _last(seen, start, key)
        if member is None:
            return _added(text, seen, start, key, _nested(keys[step + 1 :], value))
        start = member.value_start
    assert member is not None, "keys are not empty"
    return _replaced(text, member, value)


def without_member(text: bytes, keys: Sequence[str]) -> bytes:
    """Return the text without the member at ``keys``, nor others of that name beside it, MOST_OF_A_NAME at most."""
    for _ in range(MOST_OF_A_NAME):
        seen = without_comments(text)
        start = skip_space(seen, 0)
        for key in keys[:-1]:
            parent = _last(seen, start, key)
            if parent is None:
                return text
            start = parent.value_start
        found = list(members(seen, start))
        place = next((number for number, each in enumerate(found) if each.key == keys[-1]), None)
        if place is None:
            return text
        text = _taken_out(text, found, place)
    return text


def _last(seen: bytes, start: int, key: str) -> Member | None:
    """The member that counts, where there are several of one name."""
    return next((each for each in reversed(list(members(seen, start))) if each.key == key), None)


def _nested(keys: Sequence[str], value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


# --- cuts -------------------------------------------------------------------------------------------------------


def _replaced(text: bytes, member: Member, value: Any) -> bytes:
    written = _written(value, text, _indent_of_line(text, member.key_start))
    return text[: member.value_start] + written + text[member.value_end :]


def _added(text: bytes, seen: bytes, start: int, key: str, value: Any) -> bytes:
    """Put a member behind all others and their comments, in a line of its own unless the object has only one line."""
    found = list(members(seen, start))
    close = end_of_value(seen, start) - 1
    assert byte(seen, close) == CLOSE_OBJECT, "the text was read before"
    end = len(text[:close].rstrip())
    name = json.dumps(key, ensure_ascii=False).encode() + b": "
    if found and b"\n" not in text[start:close]:
        written = b" " + name + json.dumps(value, ensure_ascii=False).encode()
        return _joined(text, found, end, written, text[end:])
    base = _indent_of_line(text, found[-1].key_start if found else start)
    inner = base if found else base + _unit(text)
    written = _newline_bytes(text) + inner + name + _written(value, text, inner)
    rest = text[end:] if b"\n" in text[end:close] else _newline_bytes(text) + base + text[close:]
    return _joined(text, found, end, written, rest)


def _joined(text: bytes, found: list[Member], end: int, written: bytes, rest: bytes) -> bytes:
    """The text up to ``end``, what is ``written`` there, and the ``rest``, with the comma that is needed between."""
    if not found:
        return text[:end] + written + rest
    last = found[-1].value_end
    if _comma_behind(text, last) is not None:
        return text[:end] + written + b"," + rest
    return text[:last] + b"," + text[last:end] + written + rest


def _taken_out(text: bytes, found: list[Member], place: int) -> bytes:
    """Cut a member with the line break ahead of it, and the comma that is one too many: its own, or that before the
    last one.

    Comments stay, whomever they are about. So does the line break where more follows: it may end a comment.
    """
    start, end = found[place].key_start, found[place].value_end
    own = _comma_behind(text, end)
    comma = own if own is not None or not place else _comma_behind(text, found[place - 1].value_end)
    commas = (len(text), len(text)) if comma is None else (comma, comma + 1)
    line = text[: start - len(_indent_of_line(text, start))]
    if line.endswith(b"\n") and _REST_OF_LINE.match(text, end if own is None else own + 1):
        start = len(line.removesuffix(b"\n").removesuffix(b"\r"))
    elif own is None:
        start = len(text[:start].rstrip(b" \t"))
    else:
        commas = own, len(text) - len(text[own + 1 :].lstrip(b" \t"))
    (first, last), (again, until) = sorted([(start, end), commas])
    return text[:first] + text[last:again] + text[until:]


def _comma_behind(text: bytes, end: int) -> int | None:
    """The place of the comma that follows a value, also behind the last one; None where none does."""
    seen = _COMMENT.sub(_blank, text)
    at = skip_space(seen, end)
    return at if seen[at : at + 1] == b"," else None


# --- looks ------------------------------------------------------------------------------------------------------


def _written(value: Any, text: bytes, base: bytes) -> bytes:
    """The value as JSON, in one line where the whole text has one, else indented as the text is."""
    if text.strip() not in (b"", b"{}") and b"\n" not in text:
        return json.dumps(value, ensure_ascii=False).encode()
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text).decode()).encode().split(b"\n")
    return (_newline_bytes(text) + base).join(lines)


def _unit(text: bytes) -> bytes:
    found = _INDENT_BYTES.search(text)
    return found[1] if found else b"  "


def _newline_bytes(text: bytes) -> bytes:
    return b"\r\n" if b"\r\n" in text else b"\n"


def _indent_of_line(text: bytes, at: int) -> bytes:
    line = text[text.rfind(b"\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


_INDENT = re.compile(r"( +)[^\s#]")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_NOTHING_BELOW = re.compile(r"(?:\s+(?:\{\s*\}|null|~))?(\s*(?:#.*)?)")
_EMPTY = re.compile(r"\s*(?:#.*)?")
_MARK = "\ufeff"


class CannotEdit(Exception):
    """A file that cannot be edited without risk; ``str(error)`` says why."""


def with_entry(text: str, kind: Format, keys: Sequence[str], name: str, entry: Entry) -> str:
    """Return the file with the entry ``name`` below ``keys``, in place of one of that name. Raises CannotEdit.

    The result is read again and compared, so that nothing else changes.
    """
    mark, text = _marked(text)
    old = _read(text, kind)
    parent = _parent(old, keys)
    if parent.get(name) == entry:
        return mark + text
    replaces = name in parent
    parent[name] = entry
    if kind == "json":
        edited = with_member((text if text.strip() else "{}\n").encode(), [*keys, name], entry).decode()
    elif replaces:
        raise CannotEdit(f"it has another server called {name}. Remove that one, or choose another --name")
    elif kind == "toml":
        edited = _below(text, _toml([*keys, name], entry), blank=True)
    else:
        edited = _with_yaml_entry(text, keys[0], name, entry)
    return mark + _verified(edited, kind, old)


def without_entry(text: str, kind: Format, keys: Sequence[str], name: str) -> str:
    """Return the file without the entry ``name`` below ``keys``, if it has one. Raises CannotEdit as ``with_entry``."""
    mark, text = _marked(text)
    old = _read(text, kind)
    parent = _parent(old, keys)
    if name not in parent:
        return mark + text
    del parent[name]
    if kind == "json":
        edited = without_member(text.encode(), [*keys, name]).decode()
    elif kind == "toml":
        edited = _without_toml_entry(text, [*keys, name])
        if not parent:
            # In TOML, a table is there only as long as something is in it.
            _parent(old, keys[:-1]).pop(keys[-1])
    else:
        edited = _without_yaml_entry(text, keys[0], name)
    return mark + _verified(edited, kind, old)


def entry_text(kind: Format, keys: Sequence[str], name: str, entry: Entry) -> str:
    """The entry alone, as it stands in a file that has nothing else."""
    return with_entry("", kind, keys, name, entry)


# --- reading ----------------------------------------------------------------------------------------------------


def _marked(text: str) -> tuple[str, str]:
    """The byte order mark, where there is one, and the text behind it."""
    return (_MARK, text[1:]) if text.startswith(_MARK) else ("", text)


def _read(text: str, kind: Format) -> dict[str, Any]:
    try:
        if kind == "json":
            value = _read_json(text) if text.strip() else {}
        elif kind == "toml":
            value = tomllib.loads(text)
        else:
            value = yaml.safe_load(text) or {}
    except (ValueError, RecursionError, yaml.YAMLError):
        raise CannotEdit(f"it is no {kind.upper()}") from None
    if not isinstance(value, dict):
        raise CannotEdit("it is not a file of settings")
    return value


def _read_json(text: str) -> Any:
    # Numbers stay as they are written: two that are beyond a float are not the same.
    return json.loads(without_comments(text.encode()), parse_float=str, parse_constant=_refuse)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _parent(tree: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """The object at ``keys``, made where there is none."""
    for key in keys:
        if tree.get(key) is None:
            tree[key] = {}
        tree = tree[key]
        if not isinstance(tree, dict):
            raise CannotEdit(f"{key} holds no servers in it")
    return tree


def _verified(edited: str, kind: Format, expected: dict[str, Any]) -> str:
    try:
        if _read(edited, kind) == expected:
            return edited
    except CannotEdit:
        pass
    raise CannotEdit("its layout is not known")


# --- lines ------------------------------------------------------------------------------------------------------


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _below(text: str, block: str, *, blank: bool) -> str:
    """The text with a block of lines at its end, behind an empty line where it is to be ``blank`` there."""
    if not text.strip():
        return text + block
    newline = _newline(text)
    end = "" if text.endswith("\n") else newline
    return text + end + (newline if blank else "") + block.replace("\n", newline)


def _toml(keys: Sequence[str], entry: Entry) -> str:
    # A string of JSON is one of TOML too, and so is a list of them.
    head = ".".join(key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False) for key in keys)
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join([f"[{head}]", *lines, ""])


def _without_toml_entry(text: str, keys: Sequence[str]) -> str:
    """The text without the table at ``keys`` and those below it. Comments ahead of the next table are that one's."""
    kept: list[str] = []
    between: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            if not _heads(line, keys):
                kept += between
                inside = False
            elif not inside:
                inside = True
                if kept and not kept[-1].strip():
                    kept.pop()
            between = []
        if not inside:
            kept.append(line)
        elif _EMPTY.fullmatch(line.strip()):
            between.append(line)
        else:
            between = []
    return "".join([*kept, *between])


def _heads(line: str, keys: Sequence[str]) -> bool:
    """Tell whether a line is the head of the table at ``keys``, or of one below it."""
    try:
        found: Any = tomllib.loads(line)
    except ValueError:
        return False
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True


def _with_yaml_entry(text: str, key: str, name: str, entry: Entry) -> str:
    """The text with the entry as the first one below the top-level ``key``, whose others may be indented anyhow."""
    lines = text.splitlines(keepends=True)
    place = next((number for number, line in enumerate(lines) if line.startswith(f"{key}:")), None)
    if place is None:
        return _below(text, _yaml({key: {name: entry}}, ""), blank=False)
    newline = _newline(text)
    empty = _NOTHING_BELOW.fullmatch(lines[place].rstrip("\r\n"), len(key) + 1)
    if empty is None:
        raise CannotEdit("its layout is not known")
    following = next((line for line in lines[place + 1 :] if not _EMPTY.fullmatch(line.strip())), "")
    below = _INDENT.match(following)
    block = _yaml({name: entry}, below[1] if below else "  ").replace("\n", newline)
    return "".join([*lines[:place], f"{key}:{empty[1]}{newline}", block, *lines[place + 1 :]])


def _without_yaml_entry(text: str, key: str, name: str) -> str:
    """The text without the lines of one entry below the top-level ``key``; comments behind it stay."""
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode), "it was read before"
    entries = next(value for found, value in root.value if found.value == key)
    if not isinstance(entries, yaml.MappingNode) or entries.flow_style:
        raise CannotEdit("its layout is not known")
    found, value = next(pair for pair in entries.value if pair[0].value == name)
    lines = text.splitlines(keepends=True)
    start, end = found.start_mark.line, max(value.end_mark.line, found.start_mark.line + 1)
    while end > start + 1 and _EMPTY.fullmatch(lines[end - 1].strip()):
        end -= 1
    if len(entries.value) == 1:
        # Nothing below the key would be null, which is no mapping.
        place = next(number for number, line in enumerate(lines) if line.startswith(f"{key}:"))
        lines[place] = f"{key}: {{}}{lines[place][len(key) + 1 :]}"
    return "".join([*lines[:start], *lines[end:]])


def _yaml(value: dict[str, Any], indent: str) -> str:
    lines = yaml.safe_dump(value, sort_keys=False, allow_unicode=True).splitlines(keepends=True)
    return "".join(indent + line for line in lines)
