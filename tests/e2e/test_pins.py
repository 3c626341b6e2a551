"""``mcp-adapter pins`` as an operator and a CI job meet it, with an SDK server that changes its tools."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands.running import mcp_adapter
from tests.e2e.processes import adapter
from tests.e2e.provision import ROOT
from tests.edge.raw import RawClient

READ = {
    "name": "read",
    "description": "Reads a file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}
WRITE = {"name": "write", "description": "Writes a file.", "inputSchema": {"type": "object"}}
REMOVE = {"name": "remove", "description": "Removes a file.", "inputSchema": {"type": "object"}}

pytestmark = pytest.mark.e2e


@dataclass
class Shop:
    """A directory with a settings file, and the server ``shop`` that it names; its tools are ``tools``."""

    place: Path
    url: str
    tools: list[dict[str, Any]] = field(default_factory=list)

    def offer(self, *tools: dict[str, Any]) -> None:
        """Have the server offer these tools from now on."""
        self.tools = list(tools)
        (self.place / "tools.json").write_text(json.dumps(self.tools))

    def configure(self, *, url: str | None = None, core: dict[str, Any] | None = None, **more: Any) -> None:
        """Write the settings file; ``more`` are the server's own settings, and ``state`` the store's."""
        state = more.pop("state", "disk")
        settings = {
            "core": core or {},
            "storage": {"root": str(self.place / "data")},
            "state_persistence": {"type": state},
            "servers": [{"id": "shop", "upstream": {"url": url or self.url}, **more}],
        }
        (self.place / "config.yaml").write_text(yaml.safe_dump(settings))

    def pins(self, *arguments: str, stdin: Path | str = "") -> subprocess.CompletedProcess[str]:
        """Run ``mcp-adapter pins`` in some other directory, as CI may."""
        config = self.place / "config.yaml"
        return mcp_adapter(self.place.parent, "pins", *arguments, "--config", config, stdin=stdin)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A server that offers three tools on two pages, and settings that name it."""
    place = tmp_path / "shop"
    place.mkdir()
    opened = Shop(place, "")
    opened.offer(READ, WRITE, REMOVE)
    command = [sys.executable, "-m", "tests.e2e.redefined_server", "0", str(place / "tools.json")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        opened.url = process.stdout.readline().strip()
        opened.configure()
        yield opened
        process.terminate()


def changed(tool: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {**deepcopy(tool), **members}


# --- what was accepted ----------------------------------------------------------------------------------------


def test_from_nothing_to_drift_and_back(shop: Shop) -> None:
    """What was accepted is what later tools are held against, until those are accepted in their turn."""
    nothing = shop.pins("diff")
    assert (nothing.returncode, nothing.stderr) == (0, "")
    assert nothing.stdout.startswith("shop: nothing is pinned yet; now 3 tools (")
    assert not (shop.place / "data").exists()

    first = shop.pins("accept", "--yes")
    assert first.returncode == 0
    assert "\n  read\n  remove\n  write\n" in first.stdout
    assert "the baseline of every session is now 3 tools" in first.stdout
    assert shop.pins("diff").returncode == 0

    shop.offer(changed(READ, description="Reads a file and mails it."), WRITE, changed(REMOVE, name="delete"))
    drifted = shop.pins("diff")
    assert drifted.returncode == 1
    assert drifted.stdout.startswith("shop: 1 changed, 1 renamed\n--- accepted ")
    assert "changed read\n  description\n" in drifted.stdout
    assert "  - Reads a file.\n  + Reads a file and mails it.\n" in drifted.stdout
    assert "renamed remove to delete\n" in drifted.stdout
    assert shop.pins("check").stdout == drifted.stdout

    accepted = shop.pins("accept", "shop", "--yes")
    assert accepted.returncode == 0 and accepted.stdout.startswith(drifted.stdout)
    assert "nothing to accept" in shop.pins("accept", "--yes").stdout


def test_the_list_says_how_each_server_stands(shop: Shop) -> None:
    """Where sessions start, and what the server offers now, also when it does not answer."""
    assert "baseline     what each session sees first\n" in shop.pins("list").stdout
    shop.pins("accept", "--yes")
    shop.offer(changed(READ, annotations={"readOnlyHint": False}), WRITE)
    said = shop.pins("list").stdout
    assert said.startswith("shop\n  baseline     accepted ")
    assert ": 1 changed, 1 removed; 1 less safe\n" in said
    shop.configure(url="http://127.0.0.1:1/mcp")
    away = shop.pins("list")
    assert away.returncode == 0
    assert "now          unknown: The upstream server cannot be reached" in away.stdout


@pytest.mark.parametrize("topic", ["list", "diff", "check"])
def test_json_agrees_with_the_text(shop: Shop, topic: str) -> None:
    """The exit status is that of the text, and the data has what the text says."""
    shop.pins("accept", "--yes")
    same = shop.pins(topic, "--json")
    (status,) = json.loads(same.stdout)
    assert (same.returncode, status["id"], status["error"], status["now"]["tools"]) == (0, "shop", None, 3)
    assert [(each["binding"], each["drift"]) for each in status["baselines"]] == [(True, None)]
    assert status["baselines"][0]["digest"] == status["now"]["digest"]

    shop.offer(changed(READ, description="Reads a file and mails it."), WRITE, changed(REMOVE, name="delete"))
    drifted = shop.pins(topic, "--json")
    (status,) = json.loads(drifted.stdout)
    assert (drifted.returncode, drifted.stderr) == (shop.pins(topic).returncode, "")
    drift = status["baselines"][0]["drift"]
    assert [each["name"] for each in drift["changed"]] == ["read"]
    assert drift["renamed"] == [{"old": "remove", "new": "delete"}]

    shop.configure(url="http://127.0.0.1:1/mcp")
    away = shop.pins(topic, "--json")
    (status,) = json.loads(away.stdout)
    assert away.returncode == shop.pins(topic).returncode
    assert status["now"] is None and status["error"].startswith("The upstream server cannot be reached")


async def test_what_sessions_met_is_shown_until_it_is_accepted(shop: Shop) -> None:
    """Also when the server has taken it back, and the adapter has gone: nobody says that nothing changed."""
    was = list(shop.tools)
    servers = [{"id": "shop", "mount_path": "/mcp", "upstream": {"url": shop.url}}]
    async with adapter(shop.place, shop.url, servers=servers) as front:
        for tools in (was, [changed(READ, description="Reads a file and mails it."), WRITE, REMOVE], was):
            shop.offer(*tools)
            async with RawClient(front.port) as client:
                await client.initialize()
                await client.request("POST", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
    said = shop.pins("list").stdout
    assert "drift seen   " in said and "by 1 session or principal, first by anonymous, " in said
    diff = shop.pins("diff")
    assert diff.returncode == 1
    assert "not accepted yet" in diff.stdout and "  + Reads a file and mails it." in diff.stdout
    assert shop.pins("accept", "--yes").returncode == 0
    diff = shop.pins("diff")
    assert diff.returncode == 0 and "not accepted" not in diff.stdout


def test_accepting_asks_at_a_terminal(shop: Shop) -> None:
    """Nothing is accepted but by a yes; without a terminal there is nobody to say it."""
    alone = shop.pins("accept")
    assert alone.returncode == 2 and "use --yes" in alone.stderr
    for answer, status in (("n", 1), ("", 1), ("y", 0)):
        operator, terminal = pty.openpty()
        os.write(operator, f"{answer}\n".encode())
        said = shop.pins("accept", stdin=Path(os.ttyname(terminal)))
        os.close(terminal)
        os.close(operator)
        assert said.returncode == status
        assert "Make these 3 tools" in said.stdout
    assert shop.pins("check").returncode == 0


def test_what_no_model_reads_is_told_and_no_drift(shop: Shop) -> None:
    """Other members of a definition do not hold up sessions, and so no job of CI either."""
    shop.pins("accept", "--yes")
    shop.offer(changed(READ, _meta={"example.org/build": 2}), WRITE, REMOVE)
    said = shop.pins("check")
    assert said.returncode == 0
    assert "members that are not part of the fingerprint differ" in said.stdout
    assert "Nothing that a model sees has changed" in said.stdout


# --- lock files -----------------------------------------------------------------------------------------------


def test_a_lock_file_is_checked_in_ci(shop: Shop) -> None:
    """It lies beside the settings, is written by export, and needs no state: none is made."""
    shop.configure(tools_lock="tools.lock")
    missing = shop.pins("check")
    assert missing.returncode == 2 and "create it with mcp-adapter pins export" in missing.stderr
    written = shop.pins("export")
    assert (written.returncode, written.stdout) == (0, f"{shop.place / 'tools.lock'} is written\n")
    lock = (shop.place / "tools.lock").read_text()
    assert "is unchanged" in shop.pins("export").stdout

    shop.offer(changed(READ, inputSchema={"type": "object"}), WRITE, REMOVE)
    said = shop.pins("check")
    assert said.returncode == 1
    assert "--- tools.lock: 3 tools (" in said.stdout and "inputSchema.properties" in said.stdout
    assert shop.pins("accept", "shop", "--yes").returncode == 2
    assert not (shop.place / "data").exists()

    shop.pins("export")
    again = (shop.place / "tools.lock").read_text().splitlines()
    lines = lock.splitlines()
    assert len([line for line in lines if line not in again]) < 10, (
        "one tool changed, the others are as before"
    )
    assert shop.pins("check").returncode == 0


def test_a_lock_file_that_was_tampered_with_is_refused(shop: Shop) -> None:
    """A definition that is not the one of its digest ends the check with its line."""
    shop.configure(tools_lock="tools.lock")
    shop.pins("export")
    lock = shop.place / "tools.lock"
    lock.write_text(lock.read_text().replace("Reads a file.", "Reads every file."))
    said = shop.pins("check")
    assert said.returncode == 2
    assert "tools.lock, line " in said.stderr and "does not match its digest" in said.stderr


def test_one_server_of_a_lock_file_is_written_anew(shop: Shop) -> None:
    """Export of one server leaves the others of its file as they are; it also prints, and writes elsewhere."""
    lock = shop.place / "tools.lock"
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    lock.write_text('format 1\n\nserver "other"\n')
    assert "add tools_lock: tools.lock to this server" in shop.pins("export", "shop").stdout
    assert 'server "other"' in lock.read_text() and 'server "shop"' in lock.read_text()
    printed = shop.pins("export", "--output", "-").stdout
    assert 'server "other"' not in printed
    assert '\ntool "read" known sha256:' in printed and f"other sha256:{digest}" in printed
    elsewhere = shop.place / "elsewhere.lock"
    assert shop.pins("export", "--output", str(elsewhere)).returncode == 0
    assert elsewhere.read_text() == printed


# --- what cannot be read --------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_no_agreement(shop: Shop) -> None:
    """A server that is away, a server that has no baseline, and a server that is not configured end with 2."""
    unpinned = shop.pins("check")
    assert unpinned.returncode == 2 and "no baseline to compare with" in unpinned.stderr
    unknown = shop.pins("check", "\x1b[2Jshop")
    assert unknown.returncode == 2 and "\x1b" not in unknown.stderr
    shop.pins("accept", "--yes")
    shop.configure(url="http://127.0.0.1:1/mcp")
    for topic in ("check", "export"):
        away = shop.pins(topic)
        assert (away.returncode, away.stdout) == (2, "")
        assert "shop: The upstream server cannot be reached" in away.stderr


def test_memory_knows_lock_files_only(shop: Shop) -> None:
    """What sessions saw is in the adapter's memory, where no other process reads it; a lock file works."""
    shop.configure(state="memory")
    for arguments in (("diff",), ("accept", "--yes"), ("list", "--seen")):
        said = shop.pins(*arguments)
        assert "Use a lock file" in said.stderr + said.stdout
        assert said.returncode == (0 if arguments[0] == "list" else 2)
    shop.configure(state="memory", tools_lock="tools.lock")
    assert shop.pins("export").returncode == 0
    assert shop.pins("check").returncode == 0


# --- what is shown --------------------------------------------------------------------------------------------


def test_hostile_definitions_do_not_reach_the_terminal(shop: Shop) -> None:
    """Control characters, bidirectional ones and those that nobody sees are spelled out, in names too."""
    shop.configure(tool_metadata_sanitization={"mode": "off"})
    shop.pins("accept", "--yes")
    hostile = "\x1b[2J\x9b1mgone\u202etxt\u200b\x07\r\u2028"
    shop.offer(
        changed(READ, description=f"Reads{hostile} a file."),
        changed(WRITE, name=f"write{hostile}", inputSchema={"type": "object", hostile: hostile}),
    )
    for topic, *rest in (["diff"], ["list"], ["accept", "--yes"], ["export", "--output", "-"]):
        said = shop.pins(topic, *rest)
        unsafe = [sign for sign in said.stdout if not sign.isprintable() and sign != "\n"]
        assert unsafe == []
        assert said.stderr == ""
        if topic == "diff":
            assert r"\u001b[2J\u009b1mgone\u202etxt\u200b" in said.stdout.replace("\n", "")
