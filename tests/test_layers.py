"""The house keeps its shape: imports point downwards, and each foreign library has one room."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

HOUSE = Path(__file__).parent.parent / "adapter"

CORE = {"rules", "wire", "errors"}
IO = {"upstream", "files", "state", "hosted"}
ABOVE_SETTINGS = {"settings", "log", "telemetry"}
PURE = CORE | {"text"}
SHARED = {"pipeline"} | CORE
BELOW_APP = {"startup", "edge", "relay", "oauth", "version", "extras"} | IO | SHARED | ABOVE_SETTINGS

MAY_IMPORT: dict[str, set[str]] = {
    "__main__": {"cli", "commands", "demo", "workers", "app"} | BELOW_APP,
    "cli": {"commands", "demo", "workers", "app"} | BELOW_APP,
    "commands": {"app", "workers"} | BELOW_APP,
    "demo": {"app", "api"} | BELOW_APP,
    # A supervisor above, which imports nothing below but its port and its log; a worker imports the app.
    "workers": {"app"} | BELOW_APP,
    "app": BELOW_APP,
    # Answers in the place of an app that could not be started.
    "startup": {"edge"} | CORE,
    "edge": {"relay", "oauth", "settings"} | IO | SHARED,
    # Asks authorization servers over HTTP, and keeps what they grant, each as a section of the settings says.
    "oauth": {"upstream", "state", "settings"} | SHARED,
    "relay": {"settings"} | IO | SHARED,
    # A section of the settings is a frozen value; rooms take it as it is.
    **dict.fromkeys(IO, {"settings"} | CORE),
    # A hosted server stands behind a local upstream: it fulfils that one's port.
    "hosted": SHARED | {"settings", "upstream", "extras"},
    "pipeline": {"settings"} | CORE,
    "rules": {"wire", "errors"},
    "wire": {"errors"},
    "errors": set(),
    "extras": set(),
    "settings": {"errors"},
    "log": {"settings", "errors"},
    "telemetry": {"settings", "rules", "version", "errors", "extras"},
    "text": set(),
    "version": set(),
    "api": {"app", "edge", "log"} | SHARED,
    "__init__": set(),
}

ONLY_IN = {
    "aiohttp.web": "edge",
    "python_multipart": "edge",
    "aiohttp": "upstream",
    "httpx2": "upstream",
    "mcp": "upstream",
    "re2": "text",
}
"""The longest prefix counts: ``aiohttp.web`` with its parts is the edge's, all other aiohttp the upstream's."""

HTTP_ENDS = ("edge", "upstream")
"""Where HTTP is spoken, so where its parser may be imported."""

NEUTRAL_PARTS_OF_AIOHTTP = ("abc", "hdrs", "http_exceptions", "typedefs")

IMPURE = {
    "aiohttp",
    "asyncio",
    "datetime",
    "logging",
    "os",
    "pathlib",
    "socket",
    "structlog",
    "threading",
    "time",
}


class Import(NamedTuple):
    """One thing that a module of the house imports, by its full dotted name."""

    path: Path
    line: int
    name: str

    @property
    def room(self) -> str:
        return room_of(self.path)

    def __str__(self) -> str:
        return f"{self.path.relative_to(HOUSE.parent)}:{self.line} imports {self.name}"


def room_of(path: Path) -> str:
    return _room(path.relative_to(HOUSE).with_suffix("").parts)


def _room(parts: tuple[str, ...]) -> str:
    """The first part, but for the wing of text: it knows nothing of the house, so that all of it may know the wing."""
    return "text" if parts[:2] == ("rules", "text") else parts[0]


def imports(path: Path, tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(HOUSE.parent).parts[: -node.level] if node.level else ()
            module = ".".join((*package, *([node.module] if node.module else [])))
            for alias in node.names:
                yield Import(path, node.lineno, f"{module}.{alias.name}")


@cache
def trees() -> dict[Path, ast.Module]:
    """Every module of the house, parsed."""
    return {path: ast.parse(path.read_bytes()) for path in sorted(HOUSE.rglob("*.py"))}


@cache
def all_imports() -> list[Import]:
    """Every import of the house."""
    return [found for path, tree in trees().items() for found in imports(path, tree)]


def target_room(found: Import) -> str | None:
    parts = found.name.split(".")
    if parts[0] != "adapter":
        return None
    return _room(tuple(parts[1:])) if len(parts) > 1 else "__init__"


def misplaced(found: Import) -> bool:
    target = target_room(found)
    return target not in (None, "text", found.room) and target not in MAY_IMPORT.get(found.room, set())


def past_the_port(found: Import) -> bool:
    return (
        found.room == "relay"
        and target_room(found) in IO
        and not (found.name + ".").startswith(f"adapter.{target_room(found)}.port.")
        and not is_of_the_bridge(found)
    )


def is_of_the_bridge(found: Import) -> bool:
    """Tell whether a bridge between eras is built, which is an upstream itself: a local one, which does no I/O."""
    return found.path.parent == HOUSE / "relay" / "eras" and found.name.startswith("adapter.upstream.local.")


def foreign(found: Import) -> bool:
    parts = found.name.split(".")
    if parts[0] == "aiohttp" and parts[1:2] and parts[1] in NEUTRAL_PARTS_OF_AIOHTTP:
        return False
    if parts[0] == "aiohttp" and parts[1:2] and (parts[1] == "web" or parts[1].startswith("web_")):
        return found.room != ONLY_IN["aiohttp.web"]
    if parts[0] == "httptools":
        return found.room not in HTTP_ENDS
    return parts[0] in ONLY_IN and found.room != ONLY_IN[parts[0]]


def test_every_module_belongs_to_a_room_of_the_house() -> None:
    """A new room is a decision about layers, so it is written into the table first."""
    assert {room_of(path) for path in trees()} <= set(MAY_IMPORT)


def test_imports_point_downwards() -> None:
    """No module imports from a room above its own or beside it."""
    assert [str(found) for found in all_imports() if misplaced(found)] == []


def test_the_relay_sees_ports_only() -> None:
    """What does the I/O can be exchanged, because the relay knows none of it."""
    assert [str(found) for found in all_imports() if past_the_port(found)] == []


def test_the_base_of_the_relay_knows_no_wing() -> None:
    """Requests, calls, stages and servers are what the wings speak of; the entrance is ``relay/call/dispatch.py``."""
    wings = {path.parent.name for path in trees() if path.parent.parent == HOUSE / "relay"}
    of_base = [found for found in all_imports() if found.path.parent == HOUSE / "relay"]
    wing_of = [found for found in of_base if found.name.startswith("adapter.relay.")]
    assert [str(found) for found in wing_of if found.name.split(".")[2] in wings] == []


def test_foreign_libraries_stay_in_their_room() -> None:
    """Whoever changes an HTTP or file library changes one room."""
    assert [str(found) for found in all_imports() if foreign(found)] == []


def test_the_core_is_pure() -> None:
    """What bytes mean and what may happen needs no clock, no loop, no log and no disk."""
    pure = [found for found in all_imports() if found.room in PURE]
    assert [str(found) for found in pure if found.name.split(".")[0] in IMPURE] == []
    for path, tree in trees().items():
        if room_of(path) in PURE:
            waiting = [node for node in ast.walk(tree) if isinstance(node, ast.Await | ast.AsyncFunctionDef)]
            assert waiting == [], f"{path.name} awaits"


@pytest.mark.parametrize(
    ("file", "statement", "check"),
    [
        ("wire/x.py", "from adapter.rules import y", misplaced),
        ("wire/x.py", "from adapter import rules", misplaced),
        ("wire/x.py", "from ..rules import y", misplaced),
        ("rules/x.py", "import adapter.settings.core", misplaced),
        ("state/x.py", "from adapter.files.port import y", misplaced),
        ("upstream/local/x.py", "from adapter.hosted.server import y", misplaced),
        ("upstream/local/x.py", "from adapter.pipeline.call import y", misplaced),
        ("relay/x.py", "from adapter.state.sqlite import y", past_the_port),
        ("relay/x.py", "from adapter.state import portal", past_the_port),
        ("relay/x.py", "from adapter.state import paging_of_sqlite", past_the_port),
        ("relay/x.py", "from aiohttp import web", foreign),
        ("edge/x.py", "import aiohttp", foreign),
        ("edge/x.py", "from aiohttp import ClientSession", foreign),
        ("upstream/x.py", "from aiohttp.web_request import Request", foreign),
    ],
)
def test_a_wrong_import_is_seen(file: str, statement: str, check: object) -> None:
    """The checks themselves find what they are for, in every spelling of an import."""
    assert callable(check)
    (found,) = imports(HOUSE / file, ast.parse(statement))
    assert check(found)


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("relay/x.py", "from adapter.state.port import Store"),
        ("relay/x.py", "from adapter.upstream import port"),
        ("edge/x.py", "from aiohttp import web, hdrs"),
        ("upstream/x.py", "import aiohttp"),
        ("app.py", "from adapter.settings import Settings"),
        ("wire/x.py", "from .spans import find"),
    ],
)
def test_a_right_import_passes(file: str, statement: str) -> None:
    """What the table allows is allowed."""
    for found in imports(HOUSE / file, ast.parse(statement)):
        assert not (misplaced(found) or past_the_port(found) or foreign(found))
