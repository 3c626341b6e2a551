"""Settings of a server that the command line names: its arguments for files, and the file that says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter.commands.wrap.command import FoundServer, FoundTools, report
from adapter.commands.wrap.wrapped_settings import (
    HOST_VARIABLE,
    WrappedServer,
    WrappedServers,
    adapters_of,
    named_arguments,
    with_all,
)
from adapter.rules.files.file_arguments import FileArgument, propose
from adapter.settings.file.load import load
from adapter.settings.section import SettingsError

TEXT = {"type": "string"}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


TOOLS = [
    tool("read_page", path=TEXT, other_file=TEXT),
    tool("look", image={"type": "string", "contentEncoding": "base64"}),
    tool("convert", source_file=TEXT, output_file=TEXT),
    tool("many", files={"type": "array", "items": {"type": "object"}}),
]


def test_named_arguments_become_entries() -> None:
    """Arguments with the same name share one; base64 is delivered as such; a nested one is taken as it is."""
    named = named_arguments(
        TOOLS, ["read_page:path", "look:image", "many:files[].path"], ["convert:output_file"]
    )
    assert adapters_of(named) == [
        {"type": "upload_consumer", "tools": ["read_page"], "file_path_argument": "path", "edits": True},
        {"type": "upload_consumer", "tools": ["look"], "file_path_argument": "image", "delivery": "base64"},
        {"type": "upload_consumer", "tools": ["many"], "file_path_argument": "files[].path", "edits": True},
        {"type": "artifact_producer", "tools": ["convert"], "output_path_argument": "output_file"},
    ]


def test_tools_that_only_read_share_no_entry_with_others() -> None:
    """A tool that says of itself that it only reads gets the file, all others a copy."""
    reads = {**tool("look", path=TEXT), "annotations": {"readOnlyHint": True}}
    proposed = propose([tool("change", path=TEXT), reads])
    entry = {"type": "upload_consumer", "file_path_argument": "path"}
    assert adapters_of(proposed) == [
        {**entry, "tools": ["change"], "edits": True},
        {**entry, "tools": ["look"], "edits": False},
    ]
    assert adapters_of(named_arguments([reads], ["look:path"], [])) == [
        {**entry, "tools": ["look"], "edits": False}
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("read_pge:path", "the server has no tool read_pge; did you mean read_page?"),
        ("nothing:path", "the server has no tool nothing; there are read_page, look, convert, many"),
        ("read_page:pth", "read_page has no argument pth; did you mean path?"),
        ("read_page", "write TOOL:ARGUMENT in place of read_page"),
        ("x\u202e:y", r"the server has no tool x\u202e"),
    ],
)
def test_a_name_that_the_server_does_not_have_is_refused(text: str, said: str) -> None:
    """With the nearest one that it has."""
    with pytest.raises(SettingsError, match="--consume") as refused:
        named_arguments(TOOLS, [text], [])
    assert said in str(refused.value)
    with pytest.raises(SettingsError, match="t6, t7, …"):
        named_arguments([tool(f"t{number}") for number in range(9)], ["nothing:path"], [])


def test_a_tool_has_one_argument_of_each_kind() -> None:
    """Two would need two entries of one type, which a tool cannot have."""
    with pytest.raises(SettingsError, match="one argument of each kind"):
        named_arguments(TOOLS, ["read_page:path", "read_page:other_file"], [])
    assert len(named_arguments(TOOLS, ["read_page:path", "read_page:path"], [])) == 1


def test_all_means_the_first_of_each_kind_beside_those_named() -> None:
    """What is named wins over a proposal for the same tool."""
    named = named_arguments(TOOLS, ["read_page:other_file"], [])
    found = [(each.tool, each.argument, each.direction) for each in with_all(named, propose(TOOLS))]
    assert found == [
        ("read_page", "other_file", "consume"),
        ("look", "image", "consume"),
        ("convert", "source_file", "consume"),
        ("convert", "output_file", "produce"),
    ]


def test_a_saved_file_says_what_is_served_and_no_secret(tmp_path: Path) -> None:
    """Loaded with its variables it has the same servers; the value of a token is not in it."""
    secret = "hunter2-hunter2-hunter2"
    program = WrappedServer(
        "a",
        command=["./run.sh", "--api-key", secret, "x: #y"],
        variables={"A_TOKEN": secret, "LEVEL": "debug"},
        inherited=["LANG"],
    )
    server = WrappedServers("a", tmp_path / "data", 9000, [program], one_session=True)
    applied = [FileArgument("t", "path", "consume", "it was named")]
    text, variables = server.settings_file(applied, 9000)
    assert secret not in text and len(variables) == 2
    file = tmp_path / "config.yaml"
    file.write_text(text)
    loaded = load(file, environ=dict.fromkeys(variables, secret))
    served = server.settings(applied)
    assert (loaded.servers, loaded.sessions) == (served.servers, served.sessions)
    assert served.sessions.upstream == "principal"
    assert (loaded.core.port, loaded.core.allow_artifacts_download) == (9000, True)
    assert loaded.storage.root == served.storage.root


def test_files_lie_below_the_folder_of_a_program(tmp_path: Path) -> None:
    """The report names such a place; the state stays outside of it, where no tool reads it."""
    program = WrappedServer("a", command=["run", "--fast", str(tmp_path)])
    home = Path("data") / "a"
    found, files = [FoundServer("a", "1", "2025-11-25", TOOLS)], FoundTools(propose(TOOLS), ())
    wrapped = WrappedServers("a", home, 9000, [program])
    assert f"add --root {tmp_path}/mcp-adapter\n" in report(wrapped, 9000, found, files)
    assert wrapped.settings().state_path == home / "state" / "adapter.sqlite3"
    below = wrapped._replace(root=tmp_path / "mcp-adapter")
    assert "add --root" not in report(below, 9000, found, files)
    assert below.settings().state_path == home / "state" / "adapter.sqlite3"


def test_people_sign_in_at_a_url(tmp_path: Path) -> None:
    """Links lead to the port that is served, and the saved file says the same."""
    upstream = WrappedServer("x", url="https://x.example/mcp", oauth=True)
    server = WrappedServers("x", tmp_path, 9000, [upstream])
    served = server.settings()
    assert served.servers[0].upstream.auth.type == "authorization_code"
    assert served.core.public_base_url == "http://127.0.0.1:9000"
    file = tmp_path / "config.yaml"
    file.write_text(server.settings_file([], 9000)[0])
    loaded = load(file)
    assert (loaded.servers, loaded.core.public_base_url) == (served.servers, served.core.public_base_url)


@pytest.mark.parametrize(
    ("url", "transport"), [("https://x.example/mcp", "streamable_http"), ("https://x.example/sse?a=1", "sse")]
)
def test_a_url_is_served_with_its_headers(url: str, transport: str, tmp_path: Path) -> None:
    """A path that ends with /sse is of the older transport."""
    named = WrappedServer("x", url=url, headers={"Authorization": "Bearer abc"})
    server = WrappedServers("x", tmp_path, None, [named])
    upstream = server.settings().servers[0].upstream
    assert (upstream.transport, upstream.static_headers) == (transport, {"Authorization": "Bearer abc"})
    text, variables = server.settings_file([], 8932)
    assert "abc" not in text and list(variables) == ["X_TOKEN"]


def test_several_servers_have_one_address(tmp_path: Path) -> None:
    """A merged mount of all, in their order; the saved file says the same."""
    program = WrappedServer("b", command=["run", "--fast"], variables={"A_TOKEN": "hunter2-hunter2"})
    servers = [program, WrappedServer("a", url="https://a.example/mcp")]
    wrapped = WrappedServers("all", tmp_path / "data", 9000, servers)
    served = wrapped.settings()
    assert [entry.id for entry in served.members_of(served.mounts[0])] == ["b", "a"]
    assert served.mounts[0].path == "/mcp/all"
    text, variables = wrapped.settings_file([], 9000)
    file = tmp_path / "config.yaml"
    file.write_text(text)
    loaded = load(file, environ=dict.fromkeys(variables, "hunter2-hunter2"))
    assert (loaded.servers, loaded.mounts) == (served.servers, served.mounts)


@pytest.mark.parametrize(("said", "host"), [(None, "127.0.0.1"), ("0.0.0.0", "0.0.0.0")])
def test_only_a_container_is_listened_on_from_outside(
    said: str | None, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the variable of the image nobody else on the network reaches a wrapped server."""
    if said is not None:
        monkeypatch.setenv(HOST_VARIABLE, said)
    wrapped = WrappedServers("a", tmp_path, None, [WrappedServer("a", url="http://127.0.0.1:9/mcp")])
    assert wrapped.settings().core.host == host
