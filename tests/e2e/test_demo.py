"""``mcp-adapter demo`` as a person meets it: started, read, its suggestions pasted into a shell, stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
import yaml

from tests.edge.raw import INITIALIZE

ADAPTER = Path(sys.executable).with_name("mcp-adapter")
NODE_TOOLS = Path(__file__).parents[2] / ".cache" / "npm" / "node_modules" / ".bin"

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Demo:
    """A running demo and what it printed. It was started in ``place``."""

    process: subprocess.Popen[str]
    welcome: str
    place: Path

    def suggestion(self, number: int) -> str:
        """The command below the given number in the welcome text."""
        below = self.welcome.partition(f"\n{number}. ")[2].partition("\n\n")[2]
        return re.split(r"\n\n(?=\d\. |Health:)", below)[0]

    def upstream_port(self) -> int:
        written = yaml.safe_load((self.place / "data" / "demo" / "config.yaml").read_text())
        port = urlsplit(str(written["servers"][0]["upstream"]["url"])).port
        assert port is not None
        return port


def start(place: Path, port: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [ADAPTER, "demo", "--port", str(port)],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    with start(tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        welcome = ""
        while not welcome.endswith("Stop with Ctrl-C.\n") and (line := process.stdout.readline()):
            welcome += line
        # The log's first line says that the port is open.
        assert "serving" in process.stderr.readline()
        yield Demo(process, welcome, tmp_path)
        process.kill()


def pasted(command: str, place: Path | None = None, **more: str) -> str:
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, **more},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def wait_until_closed(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionError:
            return
        time.sleep(0.02)
    raise AssertionError(f"port {port} is still served")


def test_the_sdk_lists_the_tools(demo: Demo) -> None:
    """The first suggestion prints the tools of both servers at one address, the adapter's own among them."""
    _, *tools = pasted(demo.suggestion(1)).split()
    assert {"demo_query_orders", "demo_draw_chart", "demo_get_upload_url", "shop_forecast"} <= set(tools)
    assert len(set(tools)) == len(tools)


def test_one_line_calls_a_tool(demo: Demo) -> None:
    """Before all that needs more: with nothing but what is installed."""
    (line,) = [line for line in demo.welcome.splitlines() if " call " in line]
    assert '"customer": "C-001"' in pasted(line)


def test_the_one_address_comes_first(demo: Demo) -> None:
    """The first address that is printed is the one of all servers, and so is that of the client's entry."""
    first, *_ = re.findall(r"http://[^\s\"]+", demo.welcome)
    (entry,) = [line for line in demo.welcome.splitlines() if "mcpServers" in line]
    assert first.endswith("/mcp/all")
    assert json.loads(entry)["mcpServers"] == {"all": {"type": "http", "url": first}}


@pytest.mark.skipif(not (NODE_TOOLS / "mcp-inspector").exists(), reason="the MCP inspector is not installed")
def test_the_inspector_finds_orders(demo: Demo) -> None:
    """The second suggestion prints orders of the customer it asks for."""
    command = demo.suggestion(2).replace("npx -y @modelcontextprotocol/inspector@latest", "mcp-inspector")
    answer = pasted(command, PATH=f"{NODE_TOOLS}:{os.environ['PATH']}")
    assert '"customer": "C-001"' in answer


def test_the_tour_shows_progress_a_question_and_a_resource(demo: Demo) -> None:
    """The third suggestion prints each step, the server's question with its consequence, and the readme."""
    lines = pasted(demo.suggestion(3)).splitlines()
    assert lines[:3] == [f"progress: step {step} of 3" for step in (1, 2, 3)]
    assert lines[3] == "the server asks: A table for 3: where would you like to sit?"
    assert lines[4] == "Booked: 3 guests, terrace."
    assert lines[5] == "# The demo server"


def test_a_file_goes_in_and_a_picture_comes_out(demo: Demo) -> None:
    """The fourth suggestion counts the words of the file it uploads; the fifth reads and downloads a picture."""
    counted, picture, downloaded = pasted(
        "\n".join(map(demo.suggestion, (1, 4, 5))), demo.place
    ).splitlines()[1:]
    assert counted == "6 words"
    assert re.fullmatch(r"artifact://sessions/[0-9a-f]{32}/[0-9a-f]{32}/orders\.png image/png", picture)
    saved = (demo.place / "orders.png").read_bytes()
    assert saved.startswith(b"\x89PNG\r\n\x1a\n")
    assert downloaded == f"image/png, {len(saved)} bytes"
    [kept] = (demo.place / "data" / "demo" / "artifacts").glob("*/*/orders.png")
    assert kept.read_bytes() == saved


def test_the_link_opens_in_a_browser(demo: Demo) -> None:
    """The sixth suggestion prints the link of a page that takes files."""
    link = pasted("\n".join(map(demo.suggestion, (1, 6)))).splitlines()[-1]
    page = httpx2.get(link, headers={"Accept": "text/html"})
    assert page.status_code == 200
    assert 'type="file"' in page.text


def test_the_shop_answers_from_its_database(demo: Demo) -> None:
    """The seventh suggestion prints the cheapest lamps, a customer, orders, the months of a year, and a forecast."""
    answers = [json.loads(line) for line in pasted(demo.suggestion(7)).splitlines()]
    texts = [part["text"] for answer in answers for part in answer["content"]]
    lamps, _, orders, months = (json.loads(text) for text in texts if text.startswith("[{"))
    printed = "\n".join(texts)
    assert [row["name"] for row in lamps] == ["Cork Desk Lamp", "Linen Desk Lamp", "Ash Desk Lamp"]
    assert {row["status"] for row in orders} == {"overdue"}
    assert [row["month"] for row in months] == [f"2025-{month:02}" for month in range(1, 13)]
    assert '"per_month": ' in printed
    assert '<ui_passthrough type="echarts" title="Forecast">' in printed
    # The presenter withholds what identifies a person, and knows where to go on.
    assert "Meadow Hostel" in printed and "[REDACTED]" in printed
    assert "@" not in printed and "7946" not in printed
    assert "- orders-of-customer: See which orders are overdue" in printed
    asked = re.search(r'"figures": "([^"]*)"', demo.suggestion(7))
    assert asked is not None
    # What the forecast is asked about is what the shop sold in the months before.
    assert asked[1] == ", ".join(str(row["revenue"]) for row in months[:4])
    assert (demo.place / "data" / "demo" / "shop.sqlite3").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_both(demo: Demo, number: signal.Signals) -> None:
    """Stopped with Ctrl-C or by a supervisor, the demo ends in order and its server with it."""
    port = demo.upstream_port()
    demo.process.send_signal(number)
    assert demo.process.wait(timeout=15) == 0
    wait_until_closed(port)


def test_killed_leaves_no_orphan(demo: Demo) -> None:
    """Killed without a chance to say so, the demo still takes its server with it."""
    port = demo.upstream_port()
    demo.process.kill()
    wait_until_closed(port)


def test_a_second_start_uses_the_same_state(demo: Demo) -> None:
    """A session that was opened before a restart is still known to the adapter after it."""
    url = re.search(r"http://127\.0\.0\.1:(\d+)/mcp/all", demo.welcome)
    assert url is not None
    fields = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    opened = httpx2.post(url[0], content=INITIALIZE, headers=fields)
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
    demo.process.send_signal(signal.SIGTERM)
    demo.process.wait(timeout=15)
    with start(demo.place, int(url[1])) as again:
        assert again.stderr is not None
        assert "serving" in again.stderr.readline()
        ended = httpx2.delete(url[0], headers=session)
        again.kill()
    assert ended.status_code == 200


def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    """A port that is in use ends the demo with status 2 and a sentence that names a way out."""
    with socket.create_server(("127.0.0.1", 0)) as taken, start(tmp_path, taken.getsockname()[1]) as process:
        assert process.wait(timeout=15) == 2
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == ""
        complaint = process.stderr.read()
    assert complaint.count("\n") == 1
    assert "is in use" in complaint
    assert "mcp-adapter demo --port" in complaint
