"""The sentences of failures, read from the code: by the class that carries them, with their placeholders.

``catalogue()`` has those of ``adapter/errors.py``, ``others()`` those of all other exceptions, and ``log_errors()`` the
log lines of level error. Nothing is imported or run, so a sentence that is written somewhere is found.
"""

from __future__ import annotations

import ast
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

HOUSE = Path(__file__).parent.parent / "adapter"
PLACE = {
    "Problem": 1,
    "Obstacle": 1,
    "Refusal": 1,
    "CallRefused": 1,
    "RpcRefused": 1,
    "LockError": 1,
    "StageFailed": 1,
}
"""The argument that holds the sentence, of classes whose first argument is something else."""

STDERR = "stderr"
"""The name under which the lines of commands stand beside the exceptions."""

DEEPEST = 4
"""The number of functions that are followed from one to the next for a text."""

_BUILT_IN = {
    "Exception",
    "ValueError",
    "TypeError",
    "ConnectionError",
    "TimeoutError",
    "OSError",
    "RuntimeError",
}


@dataclass(frozen=True)
class Module:
    """A module of the adapter: its dotted name, its syntax tree and the values of its names at the top."""

    name: str
    tree: ast.Module
    values: dict[str, ast.expr] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)


@cache
def modules() -> Mapping[str, Module]:
    """All modules of the adapter by their dotted name."""
    found = {}
    for path in sorted(HOUSE.rglob("*.py")):
        name = ".".join(path.relative_to(HOUSE.parent).with_suffix("").parts).removesuffix(".__init__")
        found[name] = read(Module(name, ast.parse(path.read_text())))
    return found


def read(module: Module) -> Module:
    """Fill in the names that a module gives a value or imports, and its functions and methods."""
    classes = [node for node in module.tree.body if isinstance(node, ast.ClassDef)]
    bodies = [module.tree.body, *(each.body for each in classes)]
    for node in (node for body in bodies for node in body):
        if isinstance(node, ast.FunctionDef):
            module.functions[node.name] = node
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            module.values[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            module.values[node.target.id] = node.value
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            module.imported.update((each.name, node.module) for each in node.names)
    return module


@cache
def exceptions() -> Mapping[str, str]:
    """The exceptions of the adapter, each with the class that it is derived from.

    Problem (a sentence about settings), Obstacle and Unusable (those about a start) count as such.
    """
    bases = {
        node.name: base.id
        for module in modules().values()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name)
    }
    found = {"Problem": "tuple", "Obstacle": "tuple", "Unusable": "tuple"}
    while more := {
        name: base
        for name, base in bases.items()
        if name not in found and (base in _BUILT_IN or base in found)
    }:
        found.update(more)
    return found


def parent(name: str) -> str:
    """The class of the catalogue that an exception elsewhere is derived from; its own name if there is none."""
    base = exceptions().get(name, "")
    return base if base in catalogue() and base != "AdapterError" else name


def catalogue() -> Mapping[str, tuple[str, ...]]:
    """The sentences of each class of the catalogue besides its hint; a subclass elsewhere has its own."""
    listed = [node.name for node in modules()["adapter.errors"].tree.body if isinstance(node, ast.ClassDef)]
    sentences = raised()
    return {name: sentences.get(name, ()) for name in listed}


def others() -> Mapping[str, tuple[str, ...]]:
    """The sentences of every exception that is not in the catalogue, if it has any, and what commands print."""
    return {
        STDERR: printed(),
        **{name: sentences for name, sentences in raised().items() if name not in catalogue()},
    }


@cache
def raised() -> Mapping[str, tuple[str, ...]]:
    """The sentences of each exception, in the order of the code."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for module, call, function in calls():
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        name = f"settings.{name}" if _is_of_a_validator(module, name) else name
        place = PLACE.get(name, 0)
        if name.removeprefix("settings.") in exceptions().keys() | {"ValueError"} and len(call.args) > place:
            for sentence in Reading(module, function).of(call.args[place]):
                if " " in sentence and not re.fullmatch(r"\{\w+\}\W*", sentence):
                    found[name][sentence] = None
    found.pop("ValueError", None)
    return {name: tuple(sentences) for name, sentences in found.items()}


def _is_of_a_validator(module: Module, name: str) -> bool:
    return name == "ValueError" and module.name.startswith("adapter.settings.")


def log_errors() -> Mapping[str, str]:
    """The log lines of level error, those of a start that is refused among them, each with a module that writes it."""
    found = {
        str(node.value.value): module.name
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assign) and _names(node.targets[0]) == {"event"}
        if isinstance(node.value, ast.Constant) and " " in str(node.value.value)
    }
    for module, call, function in calls():
        is_error = isinstance(call.func, ast.Attribute) and call.func.attr == "error" and call.keywords
        is_obstacle = isinstance(call.func, ast.Name) and call.func.id == "Obstacle"
        if call.args and (is_error or is_obstacle):
            found.update((sentence, module.name) for sentence in Reading(module, function).of(call.args[0]))
    return found


def printed() -> tuple[str, ...]:
    """The lines that commands print to standard error, and the complaints of their parsers."""
    found: dict[str, None] = {}
    for module, call, function in calls():
        if module.name.startswith(("adapter.commands", "adapter.cli")) and _is_complaint(call):
            for sentence in Reading(module, function).of(call.args[0]):
                if " " in sentence.removeprefix(NAME):
                    found[sentence.removeprefix(NAME)] = None
    return tuple(text for text in found if not text.startswith(NOTICES))


NOTICES = ("{", "using ", "starting ", "warning: ")
"""The beginnings of lines that tell of no failure, or only pass one on."""

NAME = "mcp-adapter: "
"""The beginning of every line of a command on standard error."""


def _is_complaint(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id="print"):
            return any(ast.unparse(keyword) == "file=sys.stderr" for keyword in call.keywords)
        case ast.Attribute(value=ast.Name(id="parser"), attr="error"):
            return True
    return False


@cache
def calls() -> tuple[tuple[Module, ast.Call, ast.AST | None], ...]:
    """Every call in the code, in order, with its module and the function that it stands in."""
    return tuple(each for module in modules().values() for each in calls_of(module))


def calls_of(module: Module) -> Iterator[tuple[Module, ast.Call, ast.AST | None]]:
    """Every call of a module, in order."""
    waiting: list[tuple[ast.AST, ast.AST | None]] = [(module.tree, None)]
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, ast.Call):
            yield module, node, function
        inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        waiting.extend((child, inner) for child in reversed([*ast.iter_child_nodes(node)]))


@dataclass(frozen=True)
class Reading:
    """Reads expressions that stand in a function of a module."""

    module: Module
    function: ast.AST | None
    depth: int = 0

    def of(self, node: ast.expr) -> list[str]:
        """The texts that an expression can be, with placeholders; none for one that another place has written."""
        match node:
            case ast.Constant(value=str() as text):
                return [text]
            case ast.JoinedStr(values=values):
                return ["".join(map(self._part, values))]
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return [first + second for first in self.of(left) for second in self.of(right)]
            case ast.IfExp(body=first, orelse=second):
                return [*self.of(first), *self.of(second)]
            case ast.BoolOp(values=values):
                return [text for value in values for text in self.of(value)]
            case ast.Name(id=name):
                return [text for value in self._values(name) for text in self.of(value)]
            case (
                ast.Subscript(value=ast.Name(id=name))
                | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get"))
            ):
                return self._of_table(name)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name)):
                return self._of_function(name)
        return []

    def _of_function(self, name: str) -> list[str]:
        """The texts that a function or a method of this module, or an imported function, returns."""
        source = next((each for each in self._sources(name) if name in each.functions), None)
        if source is None or self.depth > DEEPEST:
            return []
        function = source.functions[name]
        inner = Reading(source, function, self.depth + 1)
        returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
        return [text for value in returned for text in inner.of(value)]

    def _sources(self, name: str) -> list[Module]:
        imported = modules().get(self.module.imported.get(name, ""))
        return [self.module] if imported is None else [imported, self.module]

    def _of_table(self, name: str) -> list[str]:
        tables = [value for value in self._values(name) if isinstance(value, ast.Dict)]
        return [text for table in tables for value in table.values for text in self.of(value)]

    def _values(self, name: str) -> list[ast.expr]:
        """The values of a name: in this function, at the top of this module, or of the one it comes from."""
        local = [
            node.value
            for node in ast.walk(self.function or ast.Module([], []))
            if isinstance(node, ast.Assign) and _names(node.targets[0]) == {name}
        ]
        if local:
            return [value for value in local if name not in _names(value)]
        source = modules_of(self.module, name)
        return [source.values[name]] if source is not None and name in source.values else []

    def _part(self, part: ast.expr) -> str:
        if isinstance(part, ast.Constant):
            return str(part.value)
        assert isinstance(part, ast.FormattedValue)
        if _is_constant(part.value) and (constant := self._constant(part.value)) is not None:
            return constant
        return f"{{{placeholder(part.value)}}}"

    def _constant(self, node: ast.expr) -> str | None:
        match node:
            case ast.Constant(value=value):
                return str(value)
            case ast.BinOp(left=left, op=op, right=right):
                first, second = self._constant(left), self._constant(right)
                if first is not None and second is not None and type(op) in _SUMS:
                    return str(_SUMS[type(op)](int(first), int(second)))
            case ast.Name(id=name):
                return next(map(self._constant, self._values(name)), None)
            case ast.Call(func=ast.Name(id="Path"), args=[ast.Constant(value=str() as path)]):
                return path
        return None


_SUMS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
}


def _names(node: ast.AST) -> set[str]:
    """The names in an expression."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_constant(node: ast.expr) -> bool:
    """Tell whether an expression is a name in capitals, or a sum of one."""
    node = node.left if isinstance(node, ast.BinOp) else node
    return isinstance(node, ast.Name) and node.id.isupper()


def modules_of(module: Module, name: str) -> Module | None:
    """The module that gives a name its value."""
    return module if name in module.values else modules().get(module.imported.get(name, ""))


def placeholder(node: ast.expr) -> str:
    """A word for a value that the sentence holds: the last name of its expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.strip("_"):
            return name.strip("_")
        case ast.Subscript(slice=ast.Constant(value=str() as name)):
            return name
        case ast.Subscript(value=value) | ast.Starred(value=value):
            return placeholder(value)
        case ast.Call(func=ast.Attribute(attr="strerror")):
            return "reason"
        case ast.Call(func=ast.Attribute(value=value)) if not isinstance(value, ast.Constant):
            return placeholder(value)
        case ast.Call(args=[first, *_]):
            return placeholder(first)
        case ast.BoolOp(values=[first, *_]) | ast.IfExp(body=first) | ast.BinOp(left=first):
            return placeholder(first)
    return min(_names(node), default="…").strip("_")
