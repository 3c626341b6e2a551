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

from tests.e2e.processes import adapter
from tests.e2e.provision import ROOT
from tests.edge.raw import RawClient

ADAPTER = Path(sys.executable).with_name("mcp-adapter")

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
class Said:
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str


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

    def pins(self, *arguments: str, columns: int = 100, stdin: int = subprocess.DEVNULL) -> Said:
        """Run ``mcp-adapter pins`` in some other directory, as CI may."""
        topic, *rest = arguments
        ran = subprocess.run(
            [ADAPTER, "pins", topic, *rest, "--config", self.place / "config.yaml"],
            cwd=self.place.parent,
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "COLUMNS": str(columns)},
        )
        return Said(ran.returncode, ran.stdout, ran.stderr)


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
    assert (nothing.status, nothing.err) == (0, "")
    assert nothing.out.startswith("shop: nothing is pinned yet; now 3 tools (")
    assert not (shop.place / "data").exists()

    first = shop.pins("accept", "--yes")
    assert first.status == 0
    assert "\n  read\n  remove\n  write\n" in first.out
    assert "the baseline of every session is now 3 tools" in first.out
    assert shop.pins("diff").status == 0

    shop.offer(changed(READ, description="Reads a file and mails it."), WRITE, changed(REMOVE, name="delete"))
    drifted = shop.pins("diff")
    assert drifted.status == 1
    assert drifted.out.startswith("shop: 1 changed, 1 renamed\n--- accepted ")
    assert "changed read\n  description\n" in drifted.out
    assert "Reads a file." in drifted.out and "Reads a file{+ and mails it+}." in drifted.out
    assert "renamed remove to delete\n" in drifted.out
    assert shop.pins("check").out == drifted.out

    accepted = shop.pins("accept", "shop", "--yes")
    assert accepted.status == 0 and accepted.out.startswith(drifted.out)
    assert "nothing to accept" in shop.pins("accept", "--yes").out


def test_the_list_says_how_each_server_stands(shop: Shop) -> None:
    """Where sessions start, and what the server offers now, also when it does not answer."""
    assert "baseline     what each session sees first\n" in shop.pins("list").out
    shop.pins("accept", "--yes")
    shop.offer(changed(READ, annotations={"readOnlyHint": False}), WRITE)
    said = shop.pins("list").out
    assert said.startswith("shop\n  baseline     accepted ")
    assert ": 1 changed, 1 removed; 1 less safe\n" in said
    shop.configure(url="http://127.0.0.1:1/mcp")
    away = shop.pins("list")
    assert away.status == 0
    assert "now          unknown: The upstream server cannot be reached" in away.out


@pytest.mark.parametrize("topic", ["list", "diff", "check"])
def test_json_agrees_with_the_text(shop: Shop, topic: str) -> None:
    """The exit status is that of the text, and the data has what the text says."""
    shop.pins("accept", "--yes")
    same = shop.pins(topic, "--json")
    (status,) = json.loads(same.out)
    assert (same.status, status["id"], status["error"], status["now"]["tools"]) == (0, "shop", None, 3)
    assert [(each["binding"], each["drift"]) for each in status["baselines"]] == [(True, None)]
    assert status["baselines"][0]["digest"] == status["now"]["digest"]

    shop.offer(changed(READ, description="Reads a file and mails it."), WRITE, changed(REMOVE, name="delete"))
    drifted = shop.pins(topic, "--json")
    (status,) = json.loads(drifted.out)
    assert (drifted.status, drifted.err) == (shop.pins(topic).status, "")
    drift = status["baselines"][0]["drift"]
    assert [each["name"] for each in drift["changed"]] == ["read"]
    assert drift["renamed"] == [{"old": "remove", "new": "delete"}]

    shop.configure(url="http://127.0.0.1:1/mcp")
    away = shop.pins(topic, "--json")
    (status,) = json.loads(away.out)
    assert away.status == shop.pins(topic).status
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
    said = shop.pins("list").out
    assert "drift seen   " in said and "by 1 session or principal, first by anonymous, " in said
    diff = shop.pins("diff")
    assert diff.status == 1
    assert "not accepted yet" in diff.out and "{+ and mails it+}" in diff.out
    assert shop.pins("accept", "--yes").status == 0
    diff = shop.pins("diff")
    assert diff.status == 0 and "not accepted" not in diff.out


def test_accepting_asks_at_a_terminal(shop: Shop) -> None:
    """Nothing is accepted but by a yes; without a terminal there is nobody to say it."""
    alone = shop.pins("accept")
    assert alone.status == 2 and "use --yes" in alone.err
    for answer, status in (("n", 1), ("", 1), ("y", 0)):
        operator, terminal = pty.openpty()
        os.write(operator, f"{answer}\n".encode())
        said = shop.pins("accept", stdin=terminal)
        os.close(terminal)
        os.close(operator)
        assert said.status == status
        assert "Make these 3 tools" in said.out
    assert shop.pins("check").status == 0


def test_what_no_model_reads_is_told_and_no_drift(shop: Shop) -> None:
    """Other members of a definition do not hold up sessions, and so no job of CI either."""
    shop.pins("accept", "--yes")
    shop.offer(changed(READ, _meta={"example.org/build": 2}), WRITE, REMOVE)
    said = shop.pins("check")
    assert said.status == 0
    assert "members that are not part of the fingerprint differ" in said.out
    assert "Nothing that a model sees has changed" in said.out


# --- lock files -----------------------------------------------------------------------------------------------


def test_a_lock_file_is_checked_in_ci(shop: Shop) -> None:
    """It lies beside the settings, is written by export, and needs no state: none is made."""
    shop.configure(tools_lock="tools.lock")
    missing = shop.pins("check")
    assert missing.status == 2 and "create it with mcp-adapter pins export" in missing.err
    written = shop.pins("export")
    assert (written.status, written.out) == (0, f"{shop.place / 'tools.lock'} is written\n")
    lock = (shop.place / "tools.lock").read_text()
    assert "is unchanged" in shop.pins("export").out

    shop.offer(changed(READ, inputSchema={"type": "object"}), WRITE, REMOVE)
    said = shop.pins("check")
    assert said.status == 1
    assert "--- tools.lock: 3 tools (" in said.out and "inputSchema.properties" in said.out
    assert shop.pins("accept", "shop", "--yes").status == 2
    assert not (shop.place / "data").exists()

    shop.pins("export")
    again = (shop.place / "tools.lock").read_text().splitlines()
    lines = lock.splitlines()
    assert len([line for line in lines if line not in again]) < 10, (
        "one tool changed, the others are as before"
    )
    assert shop.pins("check").status == 0


def test_a_lock_file_that_was_tampered_with_is_refused(shop: Shop) -> None:
    """A definition that is not the one of its digest ends the check with its line."""
    shop.configure(tools_lock="tools.lock")
    shop.pins("export")
    lock = shop.place / "tools.lock"
    lock.write_text(lock.read_text().replace("Reads a file.", "Reads every file."))
    said = shop.pins("check")
    assert said.status == 2
    assert "tools.lock, line " in said.err and "does not match its digest" in said.err


def test_one_server_of_a_lock_file_is_written_anew(shop: Shop) -> None:
    """Export of one server leaves the others of its file as they are; it also prints, and writes elsewhere."""
    lock = shop.place / "tools.lock"
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    lock.write_text('format 1\n\nserver "other"\n')
    assert "add tools_lock: tools.lock to this server" in shop.pins("export", "shop").out
    assert 'server "other"' in lock.read_text() and 'server "shop"' in lock.read_text()
    printed = shop.pins("export", "--output", "-").out
    assert 'server "other"' not in printed
    assert '\ntool "read" known sha256:' in printed and f"other sha256:{digest}" in printed
    elsewhere = shop.place / "elsewhere.lock"
    assert shop.pins("export", "--output", str(elsewhere)).status == 0
    assert elsewhere.read_text() == printed


# --- what cannot be read --------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_no_agreement(shop: Shop) -> None:
    """A server that is away, a server that has no baseline, and a server that is not configured end with 2."""
    unpinned = shop.pins("check")
    assert unpinned.status == 2 and "no baseline to compare with" in unpinned.err
    unknown = shop.pins("check", "\x1b[2Jshop")
    assert unknown.status == 2 and "\x1b" not in unknown.err
    shop.pins("accept", "--yes")
    shop.configure(url="http://127.0.0.1:1/mcp")
    for topic in ("check", "export"):
        away = shop.pins(topic)
        assert (away.status, away.out) == (2, "")
        assert "shop: The upstream server cannot be reached" in away.err


def test_memory_knows_lock_files_only(shop: Shop) -> None:
    """What sessions saw is in the adapter's memory, where no other process reads it; a lock file works."""
    shop.configure(state="memory")
    for arguments in (("diff",), ("accept", "--yes"), ("list", "--seen")):
        said = shop.pins(*arguments)
        assert "Use a lock file" in said.err + said.out
        assert said.status == (0 if arguments[0] == "list" else 2)
    shop.configure(state="memory", tools_lock="tools.lock")
    assert shop.pins("export").status == 0
    assert shop.pins("check").status == 0


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
        unsafe = [sign for sign in said.out if not sign.isprintable() and sign != "\n"]
        assert unsafe == []
        assert said.err == ""
        if topic == "diff":
            assert r"\u001b[2J\u009b1mgone\u202etxt\u200b" in said.out.replace("\n", "")


def test_colors_are_for_terminals(shop: Shop) -> None:
    """A pipe gets none unless it asks; changed words are marked in either case, within the width."""
    shop.pins("accept", "--yes")
    shop.offer(changed(READ, description="Reads a file, " + "again and " * 30 + "twice."), WRITE, REMOVE)
    plain = shop.pins("diff", columns=60)
    assert "\x1b" not in plain.out
    table = plain.out.partition("changed read\n")[2]
    assert max(map(len, table.splitlines())) <= 60
    colored = shop.pins("diff", "--color", "always")
    assert "\x1b[32m, again and" in colored.out
