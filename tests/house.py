"""The shape of ``adapter/`` in figures: what makes a stranger search longer than once.

``python -m tests.house [FOLDER]`` prints them, with the places behind each figure. ``tests/test_house.py`` keeps them.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapter.settings.reference_page import schema

HOUSE = Path(__file__).parent.parent / "adapter"
TESTS = Path(__file__).parent

ODD_BEGINNINGS = frozenset({"what", "whether", "how", "who", "whose", "which", "where", "whom"})
"""First words after which a docstring says neither what is done nor what a thing is."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class House:
    """``classes`` are the public ones, each name with the modules that define it. Sizes are in lines."""

    modules: dict[str, int] = field(default_factory=dict)
    classes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    docstrings: dict[str, str] = field(default_factory=dict)
    constructors: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        """Lines of all modules."""
        return sum(self.modules.values())

    @property
    def folders(self) -> dict[str, int]:
        """Modules side by side in each folder, the largest first."""
        counts: dict[str, int] = defaultdict(int)
        for name in self.modules:
            if not name.endswith("__init__.py"):
                counts[str(Path(name).parent)] += 1
        return dict(sorted(counts.items(), key=lambda each: -each[1]))

    @property
    def ambiguous(self) -> dict[str, list[str]]:
        """Public class names that stand in two modules which are not a port and what implements it."""
        return {name: places for name, places in sorted(self.classes.items()) if len(_meanings(places)) > 1}

    @property
    def odd_docstrings(self) -> list[str]:
        """Docstrings that begin with a question word."""
        return [place for place, text in self.docstrings.items() if _first_word(text) in ODD_BEGINNINGS]

    def constructors_above(self, most: int) -> dict[str, int]:
        """Classes that are made of more values than ``most``."""
        return {name: count for name, count in self.constructors.items() if count > most}


def look(folder: Path = HOUSE) -> House:
    """Read every module below ``folder``."""
    house = House()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        name = str(path.relative_to(folder.parent))
        house.modules[name] = text.count("\n")
        _read(house, name, ast.parse(text))
    return house


def code_lines(folder: Path) -> int:
    """Count the lines below ``folder`` that are neither blank nor a comment nor a docstring."""
    return sum(map(_code_lines_of, folder.rglob("*.py")))


def _code_lines_of(path: Path) -> int:
    text = path.read_text()
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in prose
        for number, line in enumerate(text.split("\n"), 1)
    )


def circles(folder: Path = HOUSE) -> list[set[str]]:
    """Find the groups of modules that need each other, imports inside functions and for types alone counted too."""
    needs = {path: _needs(path, folder.parent) for path in folder.rglob("*.py")}
    needed = {path: {each for each in needs if path in needs[each]} for path in needs}
    left, found = set(needs), []
    while left:
        start = left.pop()
        circle = {start} | (_reached(start, needs) & _reached(start, needed))
        left -= circle
        if len(circle) > 1:
            found.append({str(each.relative_to(folder.parent)) for each in circle})
    return found


def _reached(start: Path, needs: dict[Path, set[Path]]) -> set[Path]:
    seen: set[Path] = set()
    ahead = [start]
    while ahead:
        new = needs.get(ahead.pop(), set()) - seen
        seen |= new
        ahead.extend(new)
    return seen


def _needs(path: Path, top: Path) -> set[Path]:
    found: set[Path | None] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(_module(top, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = ".".join(path.relative_to(top).parts[: -node.level]) if node.level else ""
            module = ".".join(filter(None, (around, node.module)))
            found.update(_module(top, f"{module}.{name.name}") or _module(top, module) for name in node.names)
    return {each for each in found if each is not None} - {path}


def _module(top: Path, name: str) -> Path | None:
    place = top.joinpath(*name.split("."))
    return next((each for each in (place.with_suffix(".py"), place / "__init__.py") if each.exists()), None)


def setting_keys() -> set[str]:
    """The keys that a settings file may hold, each by its way through the sections; a list's members count once."""
    whole = schema()
    return set(_keys(whole["properties"], whole["$defs"], ()))


def _keys(properties: dict[str, Any], sections: dict[str, Any], way: tuple[str, ...]) -> Iterator[str]:
    for key, value in properties.items():
        names = {name for name in _sections(value) if name not in way and sections[name].get("properties")}
        if not names:
            yield key
        for name in names:
            yield from (
                f"{key}.{each}" for each in _keys(sections[name]["properties"], sections, (*way, name))
            )


def _sections(value: dict[str, Any]) -> Iterator[str]:
    """The names of the sections that a value may be, or be a list or a table of."""
    if "$ref" in value:
        yield value["$ref"].rpartition("/")[2]
    inner = [
        *value.get("anyOf", ()),
        *value.get("oneOf", ()),
        value.get("items"),
        value.get("additionalProperties"),
    ]
    for each in inner:
        if isinstance(each, dict):
            yield from _sections(each)


def _read(house: House, name: str, tree: ast.Module) -> None:
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
            house.classes[statement.name].append(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            place = f"{name}:{getattr(node, 'lineno', 1)}"
            if text := ast.get_docstring(node):
                house.docstrings[place] = text
            if isinstance(node, Function):
                house.functions[f"{place}: {node.name}"] = (node.end_lineno or node.lineno) - node.lineno + 1
            if isinstance(node, ast.ClassDef) and (values := _values(node, name)):
                house.constructors[f"{place}: {node.name}"] = values


def _values(node: ast.ClassDef, name: str) -> int:
    """The values that an object is made of; a settings section is made of a file, so it counts as none."""
    if name.startswith("adapter/settings/"):
        return 0
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return len(each.args.args) + len(each.args.kwonlyargs) - 1
    if any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        return sum(_is_given(each) for each in node.body)
    return 0


def _is_given(node: ast.stmt) -> bool:
    """Tell whether this is a field of a dataclass that its maker may give."""
    if not isinstance(node, ast.AnnAssign) or "ClassVar" in ast.unparse(node.annotation):
        return False
    return node.value is None or "init=False" not in ast.unparse(node.value)


def _meanings(places: list[str]) -> set[str]:
    """The modules of a name, those of settings apart, where every section is named after what it sets."""
    return {place for place in places if not place.startswith("adapter/settings/")}


def _first_word(text: str) -> str:
    words = text.split()
    return words[0].lower().strip(",:;.`\"'") if words else ""


def table(house: House) -> Iterator[str]:
    """The figures, a line each."""
    folder, most = next(iter(house.folders.items()))
    odd = len(house.odd_docstrings)
    sizes = list(house.functions.values())
    yield f"modules                              {len(house.modules):>7}"
    yield f"lines                                {house.lines:>7}"
    yield f"modules in the largest folder        {most:>7}   {folder}"
    yield f"public class names of two meanings   {len(house.ambiguous):>7}"
    yield f"docstrings that begin with a question{odd:>7}   {odd / max(len(house.docstrings), 1):.1%}"
    yield f"constructors of more than 7 values   {len(house.constructors_above(7)):>7}"
    yield f"lines with code                      {code_lines(HOUSE):>7}"
    yield f"lines with code of the tests         {code_lines(TESTS):>7}"
    yield f"settings                             {len(setting_keys()):>7}"
    yield f"circles of imports                   {len(circles()):>7}"
    yield f"longest module                       {max(house.modules.values()):>7}"
    yield f"longest function                     {max(sizes):>7}   median {statistics.median(sizes):g}"


def places(house: House) -> Iterator[str]:
    """The places behind the figures."""
    for folder, count in house.folders.items():
        if count > 24:
            yield f"{folder}: {count} modules"
    for name, where in house.ambiguous.items():
        yield f"{name}: {', '.join(where)}"
    for name, count in house.constructors_above(7).items():
        yield f"{name}: {count} values"
    for circle in circles():
        yield f"circle: {', '.join(sorted(circle))}"
    yield from house.odd_docstrings


if __name__ == "__main__":
    found = look(Path(sys.argv[1]) if len(sys.argv) > 1 else HOUSE)
    print("\n".join([*table(found), "", *places(found)]))
