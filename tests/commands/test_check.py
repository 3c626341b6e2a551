"""``mcp-adapter check``, run as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from adapter.rules.mounts.names import accepted
from adapter.rules.tools.lock_file import write_lock
from adapter.settings.reference_page import schema
from tests.commands.running import ONE_SERVER, mcp_adapter
from tests.e2e.provision import ROOT
from tests.ports import free_port
from tests.rules.tools.pinning import pin_of

TOOL = {"name": "read", "description": "Reads a file.", "inputSchema": {"type": "object"}}


def checked(place: Path, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    (place / "config.yaml").write_text(text)
    return mcp_adapter(place, "check", "--config", "config.yaml", *flags)


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[str]:
    """The URL of an SDK server with one tool."""
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([TOOL]))
    command = [sys.executable, "-m", "tests.e2e.redefined_server", "0", str(tools)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def servers(**urls: str) -> str:
    return yaml.safe_dump({"servers": [{"id": id_, "upstream": {"url": url}} for id_, url in urls.items()]})


def test_fine_settings_end_with_one_line(tmp_path: Path) -> None:
    """Nothing else is printed."""
    done = checked(tmp_path, servers(a="http://u:1/mcp", b="http://u:2/mcp"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "config.yaml is fine: 2 servers.\n", "")
    merged = servers(a="http://u:1/mcp") + yaml.safe_dump({"mounts": [{"id": "all", "servers": ["*"]}]})
    assert checked(tmp_path, merged).stdout == "config.yaml is fine: 1 server, 1 merged mount.\n"


def test_an_address_that_everybody_reaches_is_told_of(tmp_path: Path) -> None:
    """Without tokens the whole network may call the tools; the cure stands in the sentence."""
    done = checked(tmp_path, f"core: {{host: 0.0.0.0, allowed_hosts: [tools.example]}}\n{ONE_SERVER}")
    assert done.stderr.startswith("warning: core.host: is 0.0.0.0 and core.auth is not enabled")
    assert "enable core.auth, or set core.host to 127.0.0.1" in done.stderr
    guarded = "core: {host: 0.0.0.0, auth: {enabled: true, token: a-token-of-sixteen-letters}}\n"
    assert checked(tmp_path, guarded + ONE_SERVER).stderr == ""


def test_effective_settings_are_one_document(tmp_path: Path) -> None:
    """The line that all is fine is a comment below them, so that a file takes the whole output."""
    done = checked(tmp_path, ONE_SERVER, "--effective")
    assert done.stdout.splitlines()[-1] == "# config.yaml is fine: 1 server."
    (tmp_path / "effective.yaml").write_text(done.stdout)
    again = mcp_adapter(tmp_path, "check", "--effective", "--config", "effective.yaml")
    assert yaml.safe_load(again.stdout) == yaml.safe_load(done.stdout)
    jsonschema.validate(yaml.safe_load(done.stdout), schema())


def test_a_lock_file_that_is_missing_is_found(tmp_path: Path) -> None:
    """``serve`` would refuse to start without it."""
    done = checked(tmp_path, servers(a="http://u/mcp").rstrip() + "\n  tools_lock: tools.lock\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "servers[0].tools_lock: tools.lock cannot be read: No such file or directory" in done.stderr


def test_short_tokens_are_warned_of(tmp_path: Path) -> None:
    """Each has its place; the settings are fine all the same, and no token is shown."""
    tokens = "[{name: ci, token: s3cret-4}, {name: long, token: s3cret-s3cret-1234}]"
    auth = f"{{enabled: true, token: s3cret-3, tokens: {tokens}}}"
    done = checked(tmp_path, f"core: {{auth: {auth}}}\n{ONE_SERVER}")
    assert done.returncode == 0
    told = [line.partition(" has fewer than 16 characters")[0] for line in done.stderr.splitlines()]
    assert told == ["warning: core.auth.token:", "warning: core.auth.tokens[0].token:"]
    assert done.stdout == "config.yaml is fine: 1 server, 2 warnings.\n"
    assert "s3cret" not in done.stdout + done.stderr


def test_json_of_fine_settings(tmp_path: Path) -> None:
    """Machines read the same: what is served, and the warnings."""
    done = checked(
        tmp_path, f"core: {{auth: {{enabled: true, token: abc}}}}\n{ONE_SERVER}", "--json", "--effective"
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"], report["file"], report["problems"]) == (0, True, "config.yaml", [])
    assert [warning["path"] for warning in report["warnings"]] == ["core.auth.token"]
    assert report["servers"] == [{"id": "a", "mount": "/mcp/a"}]
    assert report["settings"]["core"]["auth"]["token"] == "***"


def test_json_of_settings_that_cannot_be_used(tmp_path: Path) -> None:
    """Each problem has its place; the exit status is that of the text."""
    done = checked(
        tmp_path, "core: {port: many}\nservers: [{id: a, upstream: {url: 'gopher://u'}}]\n", "--json"
    )
    report: Any = json.loads(done.stdout)
    assert (done.returncode, done.stderr, report["ok"]) == (2, "", False)
    assert [problem["path"] for problem in report["problems"]] == ["core.port", "servers[0].upstream.url"]


def test_connect_finds_servers_that_cannot_be_reached(tmp_path: Path, upstream: str) -> None:
    """The status is 1, and every server has its line."""
    gone = f"http://127.0.0.1:{free_port()}/mcp"
    done = checked(tmp_path, servers(here=upstream, gone=gone), "--connect")
    assert done.returncode == 1
    assert done.stdout.startswith("here: answers in ")
    assert done.stderr.splitlines()[0].startswith("gone: The upstream server cannot be reached")
    assert done.stderr.splitlines()[-1] == "config.yaml is fine, but 1 server cannot be reached."


def test_file_arguments_that_chatgpt_cannot_fill_are_told_of(tmp_path: Path, upstream: str) -> None:
    """By their path alone, and with --connect by the schema of the tool."""
    entry: dict[str, Any] = {"id": "here", "upstream": {"url": upstream}}
    consumer = {"type": "upload_consumer", "tools": ["read"]}

    def told(argument: str, **hosts: str) -> subprocess.CompletedProcess[str]:
        adapters = [{**consumer, "file_path_argument": argument}]
        text = yaml.safe_dump({"servers": [{**entry, "adapters": adapters, "hosts": hosts}]})
        return checked(tmp_path, text, "--connect")

    lists = told("rows[].files[].path")
    assert "servers[0].adapters[0].file_path_argument: stays a handle for ChatGPT" in lists.stderr
    one = told("options.path")
    assert one.stderr == "" and one.stdout.startswith("here: answers in ")
    assert "; for ChatGPT options.path of read stays a handle: it is not in the tool's schema" in one.stdout
    for argument in ("options.path", "rows[].files[].path"):
        off = told(argument, openai_file_params="off")
        assert "ChatGPT" not in off.stdout + off.stderr


def test_names_that_hosts_would_not_accept_are_told(tmp_path: Path, upstream: str) -> None:
    """With the name under which the merged mount shows the tool."""
    long = "x" * 60
    mount = yaml.safe_dump({"mounts": [{"id": "all", "servers": ["*"]}]})
    done = checked(tmp_path, servers(**{long: upstream}) + mount, "--connect")
    assert done.returncode == 0
    assert f"; read is {accepted(f'{long}_read')} at /mcp/all" in done.stdout


def test_names_at_mounts_are_told_without_asking_where_they_are_known(tmp_path: Path) -> None:
    """From lock files: those that are hidden, and those that hosts would not accept."""
    tools = {"a": ["run", "files.read"], "b": ["run"]}
    for server, names in tools.items():
        pins = {name: pin_of({"name": name, "inputSchema": {}}) for name in names}
        (tmp_path / f"{server}.lock").write_text(write_lock({server: pins}))
    entries = [
        {"id": id_, "upstream": {"url": "http://u:1/mcp"}, "tools_lock": f"{id_}.lock"} for id_ in tools
    ]
    mounts = [{"id": "all", "servers": ["*"], "prefix": "none"}, {"id": "each", "servers": ["*"]}]
    done = checked(tmp_path, yaml.safe_dump({"servers": entries, "mounts": mounts}))
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "warning: mounts[0]: run of b is hidden: run belongs to a",
        f"warning: mounts[0]: files.read of a is {accepted('files.read')}",
        f"warning: mounts[1]: files.read of a is {accepted('a_files.read')}",
    ]


def test_names_that_a_mount_hides_are_told(tmp_path: Path, upstream: str) -> None:
    """Without prefixes a tool is not shown where a server that stands before its own has the name."""
    mount = yaml.safe_dump({"mounts": [{"id": "all", "servers": ["*"], "prefix": "none"}]})
    done = checked(tmp_path, servers(one=upstream, two=upstream) + mount, "--connect")
    assert done.returncode == 0
    assert "/mcp/all: read of two is hidden: read belongs to one" in done.stdout


def test_connect_to_servers_that_answer(tmp_path: Path, upstream: str) -> None:
    """The status is 0; a server that is no MCP server is not reached."""
    done = checked(tmp_path, servers(here=upstream), "--connect", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (0, True)
    assert [(each["server"], each["reachable"]) for each in report["connections"]] == [("here", True)]
    wrong = checked(tmp_path, servers(here=upstream.rsplit("/", 1)[0] + "/nowhere"), "--connect")
    assert wrong.returncode == 1 and "does not answer as an MCP server (HTTP status 404)" in wrong.stderr


def test_the_servers_of_a_client_are_recognised(tmp_path: Path) -> None:
    """Whoever pastes them reads what they become here, as YAML that the adapter takes, and no secret."""
    done = checked(
        tmp_path,
        "mcpServers:\n"
        "  web: {type: http, url: 'http://127.0.0.1:9/mcp', headers: {Authorization: Bearer s3cret-s3cret}}\n",
    )
    assert (done.returncode, done.stdout) == (2, "")
    head, _, rest = done.stderr.partition("\n\n")
    assert "mcpServers: is the key of MCP clients" in head and "mcp-adapter init --from" in head
    assert "s3cret" not in done.stderr
    (tmp_path / "config.yaml").write_text(rest)
    again = mcp_adapter(tmp_path, "check", WEB_TOKEN="s3cret")
    assert (again.returncode, again.stdout) == (0, "config.yaml is fine: 1 server.\n")


def test_connect_refuses_credentials_in_a_url(tmp_path: Path) -> None:
    """As ``serve`` does, with the place for them and without showing them."""
    text = servers(a="http://me:s3cret@127.0.0.1:9/mcp")
    connected = checked(tmp_path, text, "--connect")
    served = mcp_adapter(tmp_path, "serve", "--port", "0")
    for done in (connected, served):
        assert (done.returncode, done.stdout) == (2, "")
        assert "upstream.url of a: The upstream URL contains credentials" in done.stderr
        assert "s3cret" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("content", [None, "no key"])
def test_private_key_that_cannot_be_used_is_refused(tmp_path: Path, content: str | None) -> None:
    """Its file is looked at where it is named: beside the settings file. What is in it is not shown."""
    auth = "{type: client_credentials, token_endpoint: https://l.example/t, client_id: a, private_key_file: k.pem}"
    if content is not None:
        (tmp_path / "k.pem").write_text(content)
    done = checked(
        tmp_path, f"servers: [{{id: a, upstream: {{url: 'https://u.example/mcp', auth: {auth}}}}}]\n"
    )
    why = "No such file or directory" if content is None else "the file holds no private key in PEM"
    assert done.returncode == 2
    assert f"servers[0].upstream.auth.private_key_file: k.pem cannot be used: {why}" in done.stderr
    assert "no key" not in done.stderr.replace(why, "")


def test_passthrough_is_warned_of(tmp_path: Path) -> None:
    """The settings are fine, and whoever reads the output knows what they mean."""
    done = checked(
        tmp_path, "servers: [{id: a, upstream: {url: 'https://u.example/mcp', auth: {type: passthrough}}}]\n"
    )
    assert done.returncode == 0
    assert "warning: servers[0].upstream.auth.type: passthrough sends the Authorization header" in done.stderr


def test_the_audit_log_is_shown(tmp_path: Path) -> None:
    """Its place; nothing is written by a check."""
    text = servers(a="http://u:1/mcp") + "core: {audit: {file: audit.log}}\n"
    line, _ = checked(tmp_path, text).stdout.splitlines()
    assert line == f"audit log: {tmp_path / 'audit.log'}"
    assert not (tmp_path / "audit.log").exists()


def test_access_rules_are_shown(tmp_path: Path) -> None:
    """Each in a line; a name that nobody has and a pattern that fits no tool are warned of."""
    define = [{"name": "read", "use": "db", "statement": "SELECT 1"}]
    rules = [
        {"principals": ["anonymous", "alcie"], "tools": ["read", "wirte_*"], "deny": ["x"]},
        {"claims": {"groups": ["ops"]}, "prompts": ["*"]},
    ]
    server = {"id": "a", "upstream": {"transport": "hosted"}, "tools": {"define": define}, "access": rules}
    connectors = [{"name": "db", "connector": "sqlite", "connection_string": ":memory:"}]
    text = yaml.safe_dump({"servers": [server], "connectors": connectors})
    done = checked(tmp_path, text)
    assert done.stdout.splitlines()[:2] == [
        "a: access of principals anonymous, alcie: tools read, wirte_*; deny x",
        "a: access of claims groups=['ops']: prompts *",
    ]
    assert done.stdout.splitlines()[-1] == "config.yaml is fine: 1 server, 3 warnings."
    assert "servers[0].access[0].principals: alcie is the name of no caller" in done.stderr
    assert "servers[0].access[0].tools: wirte_* fits none of the tools" in done.stderr
    assert "servers[0].access[1]: is for nobody: only OAuth tokens have scopes and claims" in done.stderr
    report = json.loads(checked(tmp_path, text, "--json").stdout)
    assert (len(report["servers"][0]["access"]), len(report["warnings"])) == (2, 3)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program", "'no-such-program' was not found on PATH: install it"),
        (
            "sh -c x",
            """'sh -c x' was not found on PATH: write 'sh' there, and its arguments in upstream.args: ["-c", "x"].""",
        ),
    ],
)
def test_a_program_that_is_not_there_is_named(tmp_path: Path, command: str, said: str) -> None:
    """As a warning, since this may be another machine; with --connect as the reason why it is not reached."""
    text = yaml.safe_dump({"servers": [{"id": "a", "upstream": {"transport": "stdio", "command": command}}]})
    done = checked(tmp_path, text)
    assert (done.returncode, done.stdout) == (0, "config.yaml is fine: 1 server, 1 warning.\n")
    assert done.stderr.startswith(f"warning: servers[0].upstream.command: {said}")
    done = checked(tmp_path, text, "--connect")
    assert done.returncode == 1 and f"a: upstream.command: {said}" in done.stderr
    done = checked(
        tmp_path,
        yaml.safe_dump({"servers": [{"id": "a", "upstream": {"transport": "stdio", "command": "sh"}}]}),
    )
    assert (done.returncode, done.stderr) == (0, "")
