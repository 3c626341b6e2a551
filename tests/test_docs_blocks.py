"""The examples of the documentation: each file loads, each command is known, each program is one.

What they do when they run, tests/e2e/test_docs_run.py shows. A block that cannot be checked says why above it.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import sqlite3
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from adapter.cli import _parser
from adapter.commands.command_parser import EXAMPLES
from adapter.rules.clients.mcp_clients import CLIENTS, ServerAddress, link_to
from adapter.settings.file.load import load
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError, fields_by_key
from adapter.settings.servers.hosted_tools import ToolSettings
from adapter.settings.servers.server import ServerSettings
from adapter.settings.servers.stages import ToolStages
from tests.doc_blocks import HOUSE, PAGES, Block, blocks

LANGUAGES = {"console", "json", "mermaid", "nginx", "python", "sh", "sql", "text", "toml", "ts", "yaml"}
"""What a block may be. ``text`` is output or a drawing, ``console`` commands after ``$`` with their output."""

VALUES = HOUSE / "deploy" / "helm" / "mcp-adapter" / "values.yaml"
HOSTS_KEYS = {client.keys[0] for client in CLIENTS.values()}
FOREIGN = {"apiVersion", "services", "scrape_configs", "groups", "receivers", "exporters"}
"""Keys by which the files of Kubernetes, compose, Prometheus and a collector are known."""

VALUE = "0123456789abcdef0123456789abcdef"
"""The value of every variable that an example names."""


def each(*languages: str) -> pytest.MarkDecorator:
    """Run a test for every block of these languages."""
    return pytest.mark.parametrize("block", blocks(*languages), ids=str)


def test_every_block_says_what_it_is() -> None:
    """The language of each block is one that is checked here."""
    assert [f"{block} {block.language}" for block in blocks() if block.language not in LANGUAGES] == []


def test_every_fence_is_read() -> None:
    """No fence is left over, so no block escapes the checks."""
    fences = sum(len(re.findall(r"^ *```", page.read_text(), re.MULTILINE)) for page in PAGES)
    marked = sum(page.read_text().count("<!-- not run: ") for page in PAGES)
    assert fences == 2 * (len(blocks()) + marked)


# --- settings -------------------------------------------------------------------------------------------------


@each("yaml")
def test_settings_load(block: Block, tmp_path: Path) -> None:
    """A whole file is used as it stands, and a part of one within the smallest file that it fits.

    What goes on with the first file of its page is used together with that.
    """
    parsed = yaml.safe_load(block.text)
    if not is_settings(parsed):
        return
    file = tmp_path / "config.yaml"
    environ = dict.fromkeys(re.findall(r"\$\{(\w+)", block.page.read_text()), VALUE)
    try:
        file.write_text(yaml.safe_dump(placed(parsed)))
        load(file, environ=environ)
    except SettingsError:
        first = yaml.safe_load(next(each.text for each in blocks("yaml") if each.page == block.page))
        file.write_text(yaml.safe_dump({**placed(parsed), **placed(first), **parsed}))
        load(file, environ=environ)


def is_settings(parsed: Any) -> bool:
    """Tell settings of the adapter from files of other programs: steps of CI, a client's file, manifests."""
    if isinstance(parsed, list):
        return all("type" in entry for entry in parsed)
    return not (HOSTS_KEYS | FOREIGN) & parsed.keys()


def placed(parsed: Any) -> dict[str, Any]:
    """The part of a file at its place in a file with one server. Chart values hold a file below ``config``."""
    if (
        isinstance(parsed, dict)
        and VALUES.exists()
        and parsed.keys() <= yaml.safe_load(VALUES.read_text()).keys()
    ):
        parsed = parsed.get("config", {})
    if isinstance(parsed, list):
        return {"servers": [server({"adapters": parsed})]}
    if parsed.keys() <= fields_by_key(Settings).keys():
        return {**parsed, "servers": [server(entry) for entry in parsed.get("servers", [{}])]}
    if parsed.keys() <= fields_by_key(ServerSettings).keys():
        return {"servers": [server(parsed)]}
    if parsed.keys() <= fields_by_key(ToolStages).keys():
        return {"servers": [server({"stages": {"*": parsed}})]}
    assert parsed.keys() <= fields_by_key(ToolSettings).keys()
    define = [{"name": "example", "handler": "example.py", **parsed}]
    return {"servers": [server({"upstream": {"transport": "hosted"}, "tools": {"define": define}})]}


def server(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of ``servers`` with what it needs at least."""
    return {"id": "example", "upstream": {"url": "http://127.0.0.1:9000/mcp"}, **entry}


@each("yaml")
def test_steps_of_ci_run_known_commands(block: Block) -> None:
    """A step of a CI job has commands that the adapter has."""
    parsed = yaml.safe_load(block.text)
    for step in parsed if isinstance(parsed, list) and not is_settings(parsed) else ():
        check(next(commands(step["run"])))


# --- clients --------------------------------------------------------------------------------------------------


def test_entries_for_clients_are_those_that_install_writes() -> None:
    """Each entry on the page of clients is the one of `mcp-adapter install`, below the same key."""
    address = ServerAddress("browser", "http://127.0.0.1:8932/mcp/browser")
    shown = [read(block) for block in blocks("json", "toml", "yaml") if block.page.name == "clients.md"]
    missing = [
        name
        for name, client in CLIENTS.items()
        if {client.keys[0]: {"browser": client.entry(address)}} not in shown
    ]
    assert missing == []


def read(block: Block) -> Any:
    """The value of a block."""
    loaders: Mapping[str, Callable[[str], Any]]
    loaders = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
    return loaders[block.language](block.text)


def test_files_of_clients_are_the_ones_that_install_writes() -> None:
    """The table of clients names the file and the key of each."""
    page = (HOUSE / "docs" / "clients.md").read_text()
    for name, client in CLIENTS.items():
        (row,) = re.findall(rf"^\| .+ \| `{name}` \| (.+)$", page, re.MULTILINE)
        assert client.file.path.rpartition("/")[2] in row and f"`{client.keys[0]}`" in row


@pytest.mark.parametrize("name", ["README.md", "docs/clients.md"])
def test_links_add_the_server_of_the_examples(name: str) -> None:
    """Those of VS Code and Cursor lead over https, which pages of others may show, to what the clients open."""
    page = (HOUSE / name).read_text()
    address = ServerAddress("browser", "http://127.0.0.1:8932/mcp/browser")
    cursor, code = (str(link_to(name, address)) for name in ("cursor", "vscode"))
    assert f"(https://cursor.com/en/install-mcp?{cursor.partition('?')[2]})" in page
    assert f"(https://insiders.vscode.dev/redirect?url={quote(code, '')})" in page


# --- commands -------------------------------------------------------------------------------------------------


COMMAND = re.compile(r"(?:^|[|;&(=])[ \t]*(?:[A-Z_]+=\S* )*(?:/[\w./-]*/)?mcp-adapter ([^\n]*)", re.MULTILINE)
"""The adapter as the command of a line, of a pipe or of a substitution: its arguments, and the rest of the line."""


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of each `mcp-adapter` in shell text."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in COMMAND.findall(joined):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = "#"
        found = []
        for word in lexer:
            if set(word) <= set("|&;<>()"):
                break
            found.append(word.removesuffix(")"))
        yield [word for word in found if word != "2"]


def check(arguments: list[str]) -> None:
    """Parse arguments with the real parser; wrong ones fail the test."""
    try:
        _parser().parse_args(arguments)
    except SystemExit as ended:
        assert not ended.code, f"mcp-adapter {shlex.join(arguments)}"


@each("sh", "console")
def test_commands_are_known(block: Block) -> None:
    """Each command of the adapter has the flags that it is shown with."""
    text = block.text
    if block.language == "console":
        text = "\n".join(re.findall(r"^\$ (.*)", text, re.MULTILINE))
    for arguments in commands(text):
        check(arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_sentences_are_known(page: Path) -> None:
    """A command within a sentence is one that can be typed, with words in capitals for what is the reader's."""
    prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`(?:\$ )?(mcp-adapter [^`]+)`", prose.replace("\n", " ")):
        for arguments in commands(span) if "…" not in span else ():
            if " ".join(arguments) not in EXAMPLES:
                check(arguments)


@each("sh")
def test_shell_text_is_complete(block: Block) -> None:
    """A shell can read each block."""
    read_by = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, timeout=20)
    assert (read_by.returncode, read_by.stderr) == (0, "")


@each("sh")
def test_targets_of_make_exist(block: Block) -> None:
    """`make` is only asked for what the Makefile has, and Python for modules of this repository."""
    targets = re.findall(r"^([\w-]+):", (HOUSE / "Makefile").read_text(), re.MULTILINE)
    asked = re.findall(r"^make ([\w-]+)", block.text, re.MULTILINE)
    assert [name for name in asked if name not in targets] == []
    modules = re.findall(r"python -m (tests[\w.]+)", block.text)
    places = [HOUSE / module.replace(".", "/") for module in modules]
    assert [place for place in places if not (place.is_dir() or place.with_suffix(".py").exists())] == []


# --- everything else ------------------------------------------------------------------------------------------


@each("json")
def test_json_is_json(block: Block) -> None:
    """Each document can be parsed; the file of a client has servers with a command or a URL."""
    parsed = json.loads(block.text)
    for key in HOSTS_KEYS & parsed.keys():
        assert all({"url", "httpUrl", "command"} & entry.keys() for entry in parsed[key].values())


@each("toml")
def test_toml_is_toml(block: Block) -> None:
    """Each document can be parsed."""
    assert tomllib.loads(block.text)


@each("python")
def test_python_compiles(block: Block) -> None:
    """Each program is Python; `await` may stand outside of a function, as in a notebook."""
    compile(block.text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@each("python")
def test_python_imports_what_exists(block: Block) -> None:
    """Each import works, so names of our own interface are right."""
    nodes: list[ast.stmt] = ast.parse(block.text).body
    imports: list[ast.stmt] = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), str(block), "exec"), {})


@each("sql")
def test_sql_runs(block: Block) -> None:
    """Each script can be run on an empty database."""
    with sqlite3.connect(":memory:") as database:
        database.executescript(block.text)


@each("mermaid")
def test_drawings_have_a_kind(block: Block) -> None:
    """Each drawing begins with a kind that the site can draw."""
    assert block.text.split()[0] in ("flowchart", "sequenceDiagram", "stateDiagram-v2")
