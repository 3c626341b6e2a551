"""A server's ``tools.directory``: folders and files that become the tools ``define`` would hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from adapter.settings.file.load import load
from adapter.settings.file.tool_folders import LARGEST_FILE, add_tools_of_folders, conventions, default_name
from adapter.settings.section import SettingsError
from tests.test_cli import ROOT, mcp_adapter


class Project:
    """A folder for a settings file, and the tools of a server in ``app/tools`` below it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.directory = base / "app" / "tools"
        self.directory.mkdir(parents=True)

    def write(self, path: str, text: str = "") -> Path:
        """A file below ``app/tools``."""
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def tools(
        self, *define: dict[str, Any], directory: str = "app/tools", **environ: str
    ) -> list[dict[str, Any]]:
        """What ``define`` holds once the directory is read."""
        tree = {"servers": [{"id": "a", "tools": {"directory": directory, "define": [*define]}}]}
        add_tools_of_folders(tree, self.base, environ)
        found: Any = tree["servers"][0]["tools"]
        return list(found["define"])

    def tool(self, **environ: str) -> dict[str, Any]:
        [found] = self.tools(**environ)
        return found

    def problems(self, *define: dict[str, Any], directory: str = "app/tools") -> list[str]:
        with pytest.raises(SettingsError) as refusal:
            self.tools(*define, directory=directory)
        return list(map(str, refusal.value.problems))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


# --- which tools there are ------------------------------------------------------------------------------------


def test_h12_a_directory_of_tools(project: Project) -> None:
    """Folders with a configuration or a handler, at any depth, and other YAML files come behind ``define``."""
    project.write("billing/pay/config.yaml", "use: main")
    project.write("billing/refund/handler.py")
    project.write("billing/totals.yml", "use: main")
    project.write("weather.yaml", "handler: w.py")
    project.write("notes.txt", "no tool")
    project.write("billing/README.md", "no tool")
    assert [tool["name"] for tool in project.tools({"name": "first"})] == [
        "first",
        "weather",
        "billing-totals",
        "billing-pay",
        "billing-refund",
    ]


def test_what_is_private_is_no_tool(project: Project) -> None:
    """Neither are hidden files and folders, nor those whose names begin with an underscore."""
    for path in (
        ".git/config.yaml",
        "__pycache__/handler.py",
        "_shared/handler.py",
        ".draft.yaml",
        "_base.yaml",
    ):
        project.write(path, "use: main")
    project.write("pay.yaml", "use: main")
    assert project.tool() == {"name": "pay", "use": "main"}


def test_other_yaml_of_a_tool_is_its_own(project: Project) -> None:
    """In the folder of a tool, a further YAML file is something that its scripts read."""
    project.write("pay/config.yaml")
    project.write("pay/handler.py")
    project.write("pay/prices.yaml", "[1, 2]")
    assert project.tool() == {"name": "pay", "handler": "./app/tools/pay/handler.py"}


def test_several_servers_have_directories_of_their_own(project: Project) -> None:
    """Each problem and each file belongs to the entry of its own server; a name may be used by both."""
    project.write("pay.yaml", "use: main")
    servers: list[Any] = [{"id": id, "tools": {"directory": "app/tools"}} for id in "ab"]
    files = add_tools_of_folders({"servers": [{"id": "none"}, *servers]}, project.base, {})
    assert files == {
        "servers[1].tools.define[0]": "app/tools/pay.yaml",
        "servers[2].tools.define[0]": "app/tools/pay.yaml",
    }


@pytest.mark.parametrize(
    "tools", [None, [], {"directory": 5}, {"directory": " "}, {"directory": "x", "define": "y"}]
)
def test_other_shapes_are_left_to_the_models(project: Project, tools: Any) -> None:
    """What is no directory, or no list beside it, is judged with everything else."""
    tree = {"servers": [{"id": "a", "tools": tools}, "no server"]}
    assert add_tools_of_folders(tree, project.base, {}) == {}
    assert tree["servers"][0] == {"id": "a", "tools": tools}


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("billing/get-user", "billing-get-user"),
        ("Billing/Get User (v2)", "billing-get-user-v2"),
        ("a_b", "a_b"),
        ("--x--", "x"),
        ("ü/né", "n"),
        ("ü", ""),
    ],
)
def test_h14_a_name_is_made_of_the_path(path: str, name: str) -> None:
    """Segments are joined with a dash, in lower case; what a name cannot hold is one dash, and none at an end."""
    assert default_name(Path(path)) == name


def test_h14_a_file_may_say_its_name(project: Project) -> None:
    """Its own word counts; null and nothing are no name."""
    project.write("a/config.yaml", "name: Pay")
    project.write("b/config.yaml", "name: ")
    project.write("c/config.yaml", "name: ''")
    assert [tool["name"] for tool in project.tools()] == ["Pay", "b", "c"]


def test_h14_a_name_is_used_once(project: Project) -> None:
    """A problem names both places, whether the other tool is in the settings file or in the directory."""
    project.write("a/b.yaml", "use: main")
    project.write("a-b/config.yaml", "use: main")
    project.write("c.yaml", "use: main")
    assert project.problems({"name": "other"}, {"name": "c"}) == [
        "app/tools/c.yaml: c is already the name of the tool in servers[0].tools.define[1]",
        "app/tools/a-b/config.yaml: a-b is already the name of the tool in app/tools/a/b.yaml",
    ]


def test_h14_unknown_keys_are_refused_with_their_file(project: Project) -> None:
    """So is whatever else is wrong in a tool's file: the problem names the file and the key in it."""
    project.write("pay/config.yaml", "{use: main, statement: SELECT 1, inputs: {n: {typ: int, type: int}}}")
    project.write("ask.yaml", "{use: main}")
    project.write("far.yaml", "5: five")
    settings = project.base / "config.yaml"
    settings.write_text(
        "connectors: [{name: main, connector: sqlite, connection_string: a.db}]\n"
        "servers: [{id: a, upstream: {transport: hosted}, tools: {directory: app/tools}}]\n"
    )
    with pytest.raises(SettingsError) as refusal:
        load(settings, environ={})
    assert set(map(str, refusal.value.problems)) == {
        "app/tools/pay/config.yaml: inputs.n: typ is not a known key; the nearest is type",
        "app/tools/far.yaml: [5]: keys should be strings",
    }
    project.write("pay/config.yaml", "{use: main, statement: SELECT 1}")
    project.write("far.yaml", "{name: far, use: main, handler: x.py, statement: SELECT 1}")
    with pytest.raises(SettingsError) as refusal:
        load(settings, environ={})
    assert list(map(str, refusal.value.problems)) == [
        "app/tools/ask.yaml: statement: is required where use names a connector",
        "app/tools/far.yaml: far has both of use and handler: set exactly one",
    ]


def test_tools_of_a_directory_are_like_all_others(project: Project) -> None:
    """What is loaded are the tools of the settings file, and then those of the directory."""
    project.write("pay/config.yaml", "{description: Pay, inputs: {n: {type: int}}}")
    project.write("pay/handler.py")
    settings = project.base / "config.yaml"
    settings.write_text(
        "servers: [{id: a, upstream: {transport: hosted}, "
        "tools: {directory: app/tools, define: [{name: x, handler: x.py}]}}]"
    )
    [server] = load(settings, environ={}).servers
    assert [(tool.name, tool.handler) for tool in server.tools.define] == [
        ("x", "x.py"),
        ("pay", "./app/tools/pay/handler.py"),
    ]
    assert server.tools.define[1].inputs["n"].type == "int"


# --- scripts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("/srv/x.py#run", "/srv/x.py#run"),
        ("./x.py#run", "./app/tools/pay/x.py#run"),
        ("../x.py", "./app/tools/pay/../x.py"),
        ("x.py#run", "x.py#run"),
        ("here.py#run", "./app/tools/pay/here.py#run"),
        ("#run", "#run"),
    ],
)
def test_h15_scripts_are_looked_for_in_the_tools_folder(project: Project, written: str, found: str) -> None:
    """With dots in the tool's folder; a plain path there too if the file exists, else beside the settings file."""
    project.write("pay/here.py")
    project.write(
        "pay/config.yaml",
        f"{{handler: '{written}', mappers: {{input: '{written}', output: '{written}'}},"
        f" middleware: ['{written}'], auth: {{plugin: '{written}'}}}}",
    )
    assert project.tool() == {
        "name": "pay",
        "handler": found,
        "mappers": {"input": found, "output": found},
        "middleware": [found],
        "auth": {"plugin": found},
    }


def test_h15_an_absolute_directory_makes_absolute_references(project: Project) -> None:
    """They do not depend on where the settings file lies."""
    project.write("pay/handler.py")
    [tool] = project.tools(directory=str(project.directory))
    assert tool["handler"] == f"{project.directory}/pay/handler.py"


def test_h15_a_file_of_its_own_has_the_folder_it_lies_in(project: Project) -> None:
    """The scripts of a tool without a folder lie beside its file."""
    project.write("billing/pay.yaml", "handler: pay.py")
    project.write("billing/pay.py")
    assert project.tool() == {"name": "billing-pay", "handler": "./app/tools/billing/pay.py"}


def test_h16_scripts_are_what_their_names_say() -> None:
    """In the order of names, the first of each kind; only Python counts."""
    names = ["a_handler.py", "handler.py", "InputValidator.py", "data-mapper.py", "output.py", "input.ts"]
    assert conventions(reversed(names)) == ("a_handler.py", "InputValidator.py", "data-mapper.py")
    assert conventions(["input.py", "inputs.py", "mapper.py", "handler.js"]) == (None, "input.py", None)


def test_h16_scripts_need_no_mention(project: Project) -> None:
    """A folder of scripts is a whole tool, without any configuration."""
    for name in ("handler.py", "input.py", "output.py"):
        project.write(f"pay/{name}")
    assert project.tool() == {
        "name": "pay",
        "handler": "./app/tools/pay/handler.py",
        "mappers": {"input": "./app/tools/pay/input.py", "output": "./app/tools/pay/output.py"},
    }


def test_h16_what_a_tool_says_comes_before_its_files(project: Project) -> None:
    """Scripts fill what is not set; with a statement there is no handler."""
    for name in ("handler.py", "input.py", "output.py"):
        project.write(f"pay/{name}")
    project.write("pay/config.yaml", "{handler: x.py, mappers: {input: y.py, output: }}")
    assert project.tool() == {
        "name": "pay",
        "handler": "x.py",
        "mappers": {"input": "y.py", "output": "./app/tools/pay/output.py"},
    }
    project.write("pay/config.yaml", "{use: main, mappers: [wrong]}")
    assert project.tool() == {"name": "pay", "use": "main", "mappers": ["wrong"]}


# --- what is refused ------------------------------------------------------------------------------------------


def test_variables_stand_in_tools_too(project: Project) -> None:
    """As in the settings file; one that is not set is a problem of the tool's file."""
    project.write("pay.yaml", "auth: {plugin: api_key, policy: {value: '${PAY_KEY}'}}")
    assert project.tool(PAY_KEY="k")["auth"]["policy"] == {"value": "k"}
    [problem] = project.problems()
    assert problem.startswith(
        "app/tools/pay.yaml: auth.policy.value: the environment variable PAY_KEY is not set"
    )


def test_every_problem_is_told_at_once(project: Project) -> None:
    """Each with the file that it is in, as it lies below the settings file."""
    project.write("a.yaml", "[no, mapping]")
    project.write("b/config.yaml", "x: {")
    project.write("c/config.yaml", "# " + "x" * LARGEST_FILE)
    project.write("config.yaml", "use: main")
    project.write("d/config.yaml")
    project.write("d/config.yml")
    project.write("e/handler.py")
    project.write("e/tool.yaml")
    project.write("f#/config.yaml")
    project.write("ü.yaml")
    os.mkfifo(project.directory / "g.yaml")
    assert project.problems() == [
        "app/tools/config.yaml: must be in a separate folder, because the folder gives the tool its name",
        "app/tools/a.yaml: must contain a mapping of keys of a tool such as use",
        "app/tools/g.yaml: cannot be read as a file",
        "app/tools/ü.yaml: needs a name: its path has no letter or digit for one",
        "app/tools/b/config.yaml: is not valid YAML: expected the node content, but found '<stream end>',"
        " line 1, column 5",
        "app/tools/c/config.yaml: is larger than 1 MiB, the maximum size for the file of a tool",
        "app/tools/d/config.yml: is next to config.yaml: keep only one of them",
        "app/tools/e/tool.yaml: its folder is already a tool because of handler.py: rename this file to config.yaml",
        "app/tools/f#: has a # in its name, which references to scripts cannot contain",
    ]


def test_links_may_not_lead_out(project: Project, tmp_path: Path) -> None:
    """Nor back to where they are in; those that stay inside, as mounted configuration has them, are followed."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "handler.py").touch()
    project.write("..data/pay/config.yaml", "use: main")
    (project.directory / "pay").symlink_to("..data/pay")
    assert project.tool() == {"name": "pay", "use": "main"}
    project.write("billing/handler.py")
    (project.directory / "out").symlink_to(tmp_path / "other")
    (project.directory / "billing" / "input.py").symlink_to(tmp_path / "other" / "handler.py")
    (project.directory / "billing" / "again").symlink_to(project.directory)
    assert project.problems() == [
        "app/tools/out: is a link that leads out of app/tools",
        "app/tools/billing/input.py: is a link that leads out of app/tools",
        "app/tools/billing/again: is a link to a folder that contains it",
    ]


def test_a_directory_has_to_be_there(project: Project) -> None:
    """One that is missing, or holds no tool, is a mistake rather than a server without tools."""
    assert project.problems() == ["servers[0].tools.directory: app/tools contains no tool"]
    assert project.problems(directory="tols") == ["servers[0].tools.directory: there is no directory tols"]


def test_what_shows_itself_later_is_traced_to_its_file_too(project: Project) -> None:
    """Statements are compiled and scripts loaded after the settings are read; their problems name the tool's file."""
    project.write("ask.yaml", "{use: main, statement: 'SELECT {{ inputs.n }}'}")
    project.write("run/handler.py", "not a Python")
    settings = project.base / "config.yaml"
    settings.write_text(
        "connectors: [{name: main, connector: sqlite, connection_string: a.db}]\n"
        "servers: [{id: a, upstream: {transport: hosted}, tools: {directory: app/tools}}]\n"
    )
    done = mcp_adapter("check", "--config", settings)
    assert done.returncode == 2
    _, statement, script = done.stderr.splitlines()
    assert statement.startswith("app/tools/ask.yaml: statement: ")
    assert script.startswith("app/tools/run: handler: ")


def test_the_example_passes() -> None:
    """Every statement and script that config/hosted.yaml and its folder hold can be used."""
    done = mcp_adapter("check", "--config", ROOT / "config" / "hosted.yaml")
    assert (done.returncode, done.stderr) == (0, "")
