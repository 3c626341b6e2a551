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

HOUSE = Path(__file__).parent.parent / "adapter"

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
    yield from house.odd_docstrings


if __name__ == "__main__":
    found = look(Path(sys.argv[1]) if len(sys.argv) > 1 else HOUSE)
    print("\n".join([*table(found), "", *places(found)]))
