"""A setting is there to be read: each key of every section has code that asks for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from adapter.settings.root import Settings
from tests.house import HOUSE

CHECKS = ("field_validator", "model_validator", "BeforeValidator")


def sections(kind: Any, known: dict[type[BaseModel], None]) -> dict[type[BaseModel], None]:
    """The section and all that its values may be, or be lists or tables of."""
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in known:
        known[kind] = None
        for field in kind.model_fields.values():
            sections(field.annotation, known)
    for part in get_args(kind):
        sections(part, known)
    return known


def names_read() -> Iterator[str]:
    """The names of attributes and the words that code has, but for the checks of settings themselves."""
    for path in HOUSE.rglob("*.py"):
        tree: ast.AST = ast.parse(path.read_text())
        if path.relative_to(HOUSE).parts[0] == "settings":
            properties = [
                node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and not is_check(node)
            ]
            tree = ast.Module([*properties], [])
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def is_check(function: ast.FunctionDef) -> bool:
    return any(word in ast.unparse(each) for each in function.decorator_list for word in CHECKS)


def test_each_setting_is_read() -> None:
    """A key that nobody asks for would be accepted and do nothing."""
    read = set(names_read())
    unread = [
        f"{section.__name__}.{name}"
        for section in sections(Settings, {})
        for name in section.model_fields
        if name not in read
    ]
    assert unread == []
