"""Every regular expression of the house, and the texts that are worst for each.

``house()`` finds compiled expressions wherever a module, or an object that one of its names holds, keeps them, and
those that are compiled where they are used. ``worst_texts`` derives texts from an expression's own parts: what comes
before a repetition, many times what is repeated, and something that ends it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from re import _constants as constants  # type: ignore[attr-defined]  # undocumented; the stubs leave it out
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, NamedTuple

import adapter

HOUSE = Path(adapter.__file__).parent
METHODS = frozenset(("search", "match", "fullmatch", "sub", "subn", "finditer", "findall", "split"))
ANY_METHODS = ("fullmatch", "sub")
NOT_IMPORTED = ("adapter.__main__", "adapter.upstream.demo.__main__")


class Expression(NamedTuple):
    """One expression, where it is, and the methods by which it is used."""

    where: str
    compiled: re.Pattern[Any]
    methods: tuple[str, ...]

    def __str__(self) -> str:
        return self.where


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(adapter.__path__, "adapter."):
        if found.name not in NOT_IMPORTED:
            yield importlib.import_module(found.name)


# --- finding them -------------------------------------------------------------------------------------------------


def house() -> list[Expression]:
    """All of them, each once."""
    everywhere: dict[str, set[str]] = {}
    for path in HOUSE.rglob("*.py"):
        for name, methods in _uses(path).items():
            everywhere.setdefault(name, set()).update(methods)
    found: dict[tuple[object, int], Expression] = {}
    for module in modules():
        here = _uses(_path(module))
        room = module.__name__.removeprefix("adapter.")
        for name, compiled in _held(module):
            used = here.get(name) or everywhere.get(name) or set(ANY_METHODS)
            _add(found, Expression(f"{room}:{name}", compiled, tuple(sorted(used))))
        for call in calls_of_re(module):
            if (compiled_here := _compiled(call, module)) is not None:
                method = _method(call)
                named = ANY_METHODS if method == "compile" else (method,)
                _add(found, Expression(f"{room}:{call.lineno}", compiled_here, named))
    return sorted(found.values(), key=str)


def _add(found: dict[tuple[object, int], Expression], one: Expression) -> None:
    found.setdefault((one.compiled.pattern, one.compiled.flags), one)


def _path(module: ModuleType) -> Path:
    assert module.__file__ is not None
    return Path(module.__file__)


@cache
def _nodes(path: Path) -> list[ast.AST]:
    """The attributes and the calls of a module, which are all that is looked at."""
    tree = ast.parse(path.read_bytes())
    return [node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Call)]


@cache
def _uses(path: Path) -> dict[str, set[str]]:
    """By the last part of a name the methods of expressions that are called on it."""
    used: dict[str, set[str]] = {}
    for node in _nodes(path):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            holder = node.value
            name = getattr(holder, "id", None) or getattr(holder, "attr", None)
            if name is not None:
                used.setdefault(name, set()).add(node.attr)
    return used


def _held(module: ModuleType) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Expressions that names of the module hold, in containers and in objects of the house too."""
    seen: set[int] = set()
    waiting = [(name, value) for name, value in vars(module).items() if not inspect.ismodule(value)]
    while waiting:
        name, value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, re.Pattern):
            yield name, value
        elif isinstance(value, dict):
            waiting += [(name, each) for each in value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += [(name, each) for each in value]
        elif type(value).__module__.startswith("adapter.") or _is_own_class(value):
            waiting += [(member, each) for member, each in _members(value)]


def _is_own_class(value: object) -> bool:
    return inspect.isclass(value) and value.__module__.startswith("adapter.")


def _members(value: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for name in getattr(type(value), "__slots__", ()):
        if hasattr(value, name):
            yield name, getattr(value, name)


# --- those that are compiled where they are used ------------------------------------------------------------------


def calls_of_re(module: ModuleType) -> list[ast.Call]:
    """Every call of a function of ``re`` with an expression."""
    return [
        node
        for node in _nodes(_path(module))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in {*METHODS, "compile"}
    ]


def made_of_values() -> set[str]:
    """The modules in which expressions are made of what a function was given."""
    return {
        module.__name__
        for module in modules()
        if any(_compiled(call, module) is None for call in calls_of_re(module))
    }


def _method(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    return call.func.attr


def _compiled(call: ast.Call, module: ModuleType) -> re.Pattern[Any] | None:
    """None for one that is not made of constants and names of the module alone."""
    flags = next((word.value for word in call.keywords if word.arg == "flags"), None)
    if flags is None and _method(call) == "compile" and len(call.args) > 1:
        flags = call.args[1]
    try:
        return re.compile(_evaluated(call.args[0], module), 0 if flags is None else _evaluated(flags, module))
    except NameError:
        return None


def _evaluated(node: ast.expr, module: ModuleType) -> Any:
    return eval(compile(ast.Expression(node), str(module), "eval"), vars(module))


# --- repetitions of groups that give nothing back -----------------------------------------------------------------

_SINGLE = (constants.LITERAL, constants.NOT_LITERAL, constants.IN, constants.ANY, constants.AT)
_REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT)


def misread(expression: re.Pattern[Any]) -> list[str]:
    """Reasons why not every Python since 3.11 reads the expression right and in little memory; none if all do.

    * Before 3.11.5 Python does not go back when the last round of a possessive repetition of a group fails (CPython
      issues 106052 and 100061), so ``(?:ab?c)*+`` takes the whole of ``a``. It is right where a round that fails has
      not moved, and where the last alternative is ``(?!)``: each is tried from the beginning of the round, and that
      one fails there.
    * Before 3.12.8 and 3.13.1 such a group may raise SystemError if it captures (CPython issue 101955).
    * An atomic group around a plain repetition of a group is right, but each round of it takes memory until the group
      ends: ``(?>(?:[^"]++|"")*)`` takes 57 times as much as the text. With ``(?>…|)`` in place of ``(?:…)?+`` there
      is one round.
    """
    found = []
    for op, value in _within(parser.parse(expression.pattern, expression.flags & ~re.DEBUG)):
        if op is constants.POSSESSIVE_REPEAT and not _is_single(value[2]):
            if any(op is constants.SUBPATTERN and inner[0] for op, inner in _within(value[2])):
                found.append(f"captures in a possessive repetition: {value[2]}")
            if not _fails_unmoved(value[2]):
                found.append(f"may fail after it moved: {value[2]}")
        elif op is constants.ATOMIC_GROUP and any(_is_long(*each) for each in value):
            found.append(f"keeps each round: {value}")
    return found


def _within(items: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of an expression, at any depth."""
    for op, value in items:
        yield op, value
        if op is constants.BRANCH:
            inner = value[1]
        elif op in _REPEATS or op is constants.SUBPATTERN:
            inner = [value[-1]]
        elif op is constants.ATOMIC_GROUP:
            inner = [value]
        else:
            inner = [value[1]] if op in (constants.ASSERT, constants.ASSERT_NOT) else []
        for each in inner:
            yield from _within(each)


def _is_single(items: Any) -> bool:
    """True for one character, whose repetition is another code of the engine, which was never wrong."""
    return len(items) == 1 and items[0][0] in _SINGLE


def _is_long(op: Any, value: Any) -> bool:
    return op in _REPEATS[:2] and value[1] is constants.MAXREPEAT and not _is_single(value[2])


def _is_never(items: Any) -> bool:
    """True for ``(?!)``."""
    return [op for op, _ in items] == [constants.ASSERT_NOT] and len(items[0][1][1]) == 0


def _fails_unmoved(items: Any) -> bool:
    """True if a round of these parts that fails leaves the engine where the round began, on every Python."""
    op, value = items[0]
    if op is constants.BRANCH:
        ways = value[1]
        return _is_never(ways[-1]) or (len(items) == 1 and all(_fails_unmoved(way) for way in ways))
    # Single characters do not move the engine before all of them were met; the first part that does must be the last
    # that can fail.
    rest = list(items)
    while rest and rest[0][0] in _SINGLE:
        del rest[0]
    if rest and len(rest) == len(items) and rest[0][0] in _REPEATS and _is_single(rest[0][1][2]):
        del rest[0]
    return all(op in _REPEATS and value[0] == 0 for op, value in rest)


# --- the worst of texts -------------------------------------------------------------------------------------------

_PLAIN = "a0-. /\\\"'_:=,{[<@%&\n"
_ENDS = ("", "\0", "!", "\n")
_PAIRED = "a0-. /\\\"'"


def worst_texts(expression: re.Pattern[Any], length: int) -> Iterator[Any]:
    """Texts of about ``length`` characters, or bytes, on which a careless expression would take long."""
    tree = parser.parse(expression.pattern, expression.flags & ~re.DEBUG)
    beginnings, units = _parts(tree)
    literals = "".join(dict.fromkeys(_literals(tree)))[:24]
    every = [*units, *beginnings, *literals, *_PLAIN, *(a + b for a in _PAIRED for b in _PAIRED)]
    seen = set()
    for unit in dict.fromkeys(filter(None, every)):
        for begin in ("", *beginnings[:12]):
            for end in _ENDS[: 2 if begin else None]:
                text = begin + unit * (length // len(unit)) + end
                if (begin, unit, end) not in seen:
                    seen.add((begin, unit, end))
                    yield text.encode("latin-1", "replace") if isinstance(expression.pattern, bytes) else text


def _parts(tree: Any) -> tuple[list[str], list[str]]:
    """What comes before each repetition, and what each repeats."""
    beginnings: list[str] = []
    units: list[str] = []

    def visit(items: Any, before: str) -> str:
        text = before
        for op, value in items:
            if op in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
                least, _, body = value
                beginnings.append(text)
                units.extend(_samples(body))
                visit(body, text)
                text += _sample(body) * min(max(least, 1), 50)
            elif op is constants.SUBPATTERN:
                text = visit(value[3], text)
            elif op is constants.ATOMIC_GROUP:
                text = visit(value, text)
            elif op is constants.BRANCH:
                ways = [visit(way, text) for way in value[1]]
                units.extend(way.removeprefix(text) for way in ways)
                text = ways[0]
            elif op in (constants.ASSERT, constants.ASSERT_NOT):
                visit(value[1], text)
            else:
                text += _sample([(op, value)])
            beginnings.append(text)
        return text

    units.append(visit(tree, ""))
    return list(dict.fromkeys(beginnings)), list(dict.fromkeys(units))


def _samples(items: Any) -> list[str]:
    """Several texts that the part matches, as far as it begins with a choice."""
    first = items[0] if len(items) else None
    if first is not None and len(items) == 1 and first[0] is constants.IN:
        return _members_of(first[1])[:8]
    if first is not None and len(items) == 1 and first[0] is constants.BRANCH:
        return [_sample(way) for way in first[1][1]]
    return [_sample(items)]


def _sample(items: Any) -> str:
    """A text that these parts match, but for what they assert."""
    text = ""
    for op, value in items:
        if op is constants.LITERAL:
            text += chr(value)
        elif op is constants.NOT_LITERAL:
            text += "a" if value != ord("a") else "b"
        elif op is constants.ANY:
            text += "a"
        elif op is constants.IN:
            text += (_members_of(value) or [""])[0]
        elif op is constants.BRANCH:
            text += _sample(value[1][0])
        elif op is constants.SUBPATTERN:
            text += _sample(value[3])
        elif op is constants.ATOMIC_GROUP:
            text += _sample(value)
        elif op in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            text += _sample(value[2]) * min(value[0], 100)
    return text


def _members_of(value: Any) -> list[str]:
    """Characters of a class: of those it names, and of common ones."""
    source = "[" + "".join(_spelled(item) for item in value) + "]"
    one = re.compile(source)
    named = [chr(item[1]) for item in value if item[0] is constants.LITERAL]
    named += [chr(item[1][0]) for item in value if item[0] is constants.RANGE]
    return [char for char in dict.fromkeys((*"a0", *named, *_PLAIN, *"Zé\t;")) if one.fullmatch(char)]


_CATEGORIES = {
    constants.CATEGORY_DIGIT: r"\d",
    constants.CATEGORY_NOT_DIGIT: r"\D",
    constants.CATEGORY_SPACE: r"\s",
    constants.CATEGORY_NOT_SPACE: r"\S",
    constants.CATEGORY_WORD: r"\w",
    constants.CATEGORY_NOT_WORD: r"\W",
}


def _spelled(item: Any) -> str:
    op, value = item
    if op is constants.NEGATE:
        return "^"
    if op is constants.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    if op is constants.CATEGORY:
        return _CATEGORIES[value]
    return re.escape(chr(value))


def _literals(items: Any) -> Iterator[str]:
    """Characters that the expression names anywhere."""
    for op, value in items:
        if op is constants.LITERAL:
            yield chr(value)
        elif op is constants.IN:
            yield from (chr(each[1]) for each in value if each[0] is constants.LITERAL)
        elif op is constants.BRANCH:
            for way in value[1]:
                yield from _literals(way)
        elif op is constants.SUBPATTERN:
            yield from _literals(value[3])
        elif op is constants.ATOMIC_GROUP:
            yield from _literals(value)
        elif op in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            yield from _literals(value[2])
        elif op in (constants.ASSERT, constants.ASSERT_NOT):
            yield from _literals(value[1])


if __name__ == "__main__":
    for each in house():
        sys.stdout.write(f"{each} {each.methods}\n")
