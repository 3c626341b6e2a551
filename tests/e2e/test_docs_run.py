"""The pages for beginners, done literally: their commands typed in an empty folder with an empty home.

README.md has tests/e2e/test_readme.py, docs/api.md tests/edge/test_api_page.py, docs/hosted.md
tests/edge/end_to_end/test_hosted.py, docs/access.md tests/settings/test_auth_recipes.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.doc_blocks import Block, blocks
from tests.e2e.pasted import SHOWN_PORT, Beginner, lines, newcomer
from tests.e2e.provision import packages
from tests.ports import free_port

pytestmark = pytest.mark.e2e


@pytest.fixture
def beginner(tmp_path: Path) -> Beginner:
    """A new user."""
    return newcomer(tmp_path)


def on(page: str, language: str, containing: str = "") -> Block:
    """The one block of a page, of that language and with that text."""
    (found,) = (each for each in blocks(language) if each.page.name == page and containing in each.text)
    return found


def notebook(text: str) -> str:
    """A program whose ``await`` stands outside of a function, as one that Python runs."""
    inner = "\n".join(f"    {line}" for line in text.splitlines())
    return f"import asyncio\nasync def main():\n{inner}\nasyncio.run(main())\n"


def test_getting_started(beginner: Beginner, servers_python: Path) -> None:
    """The command is there, a server is wrapped and saved, checked, served, and added to a client."""
    uvx = beginner.programs / "uvx"
    uvx.write_text(f'#!/bin/sh\nprogram=$1; shift; exec "{servers_python.parent}/$program" "$@"\n')
    uvx.chmod(0o755)
    subprocess.run(["git", "init", "-q", beginner.folder], check=True)
    version = lines(on("getting-started.md", "sh", "--version"))[-1]
    assert beginner.types(version).startswith("mcp-adapter ")
    (wrap,) = lines(on("getting-started.md", "sh", "wrap --save"))
    with beginner.runs(wrap, ready="Stop with Ctrl-C") as printed:
        assert f"http://127.0.0.1:{beginner.port}/mcp/git" in printed
    check, serve = lines(on("getting-started.md", "sh", "check"))
    assert "config.yaml is fine: 1 server." in beginner.types(check)
    with beginner.runs(serve, ready="serving"):
        (install,) = lines(on("getting-started.md", "sh", "claude-code"))
        beginner.types(f"{install} --yes")
        written = json.loads((beginner.folder / ".mcp.json").read_text())
        url = written["mcpServers"]["git"]["url"]
        assert httpx2.get(url.replace("/mcp/git", "/livez")).status_code == 200


def test_the_demo_is_what_the_pages_use(beginner: Beginner, node: Path) -> None:
    """Beside the demo: the console opens, programs in Python and TypeScript and the Inspector find its tools, and a
    file goes in and comes back from a program, from curl and from a shell."""
    (demo,) = lines(on("getting-started.md", "sh", "adapter demo"))
    (beginner.folder / "hamlet.txt").write_text("To be, or not to be")
    with beginner.runs(f"{demo} --port {beginner.port}", ready="serving") as printed:
        answers(beginner, printed)
        python = beginner.folder / "client.py"
        for part, wanted in (("list_tools", "count_words"), ("httpx2", "6")):
            text = notebook(on("clients.md", "python", part).text)
            python.write_text(text.replace(SHOWN_PORT, str(beginner.port)))
            assert wanted in beginner.types(f"python {python}"), part
        (beginner.folder / "node_modules").symlink_to(packages())
        program = beginner.folder / "client.mjs"
        program.write_text(on("clients.md", "ts").text.replace(SHOWN_PORT, str(beginner.port)))
        assert "count_words" in beginner.types(f"{node} {program}")
        (inspector,) = lines(on("clients.md", "sh", "inspector"))
        path = os.pathsep.join([str(node.parent), beginner.variables["PATH"]])
        # Without the tag npx takes the installed one, whose version the tests have fixed.
        inspector = inspector.replace("@latest", "").replace("/browser", "/demo")
        assert "count_words" in beginner.types(inspector, PATH=path)
        uploads(beginner)
        calls(beginner)
        doctor_looks(beginner)


def answers(beginner: Beginner, printed: str) -> None:
    """The addresses of the pages answer."""
    assert httpx2.get(f"http://127.0.0.1:{beginner.port}/explorer/").status_code == 200
    assert f"http://127.0.0.1:{beginner.port}/mcp/demo" in printed
    (curl,) = [line for line in lines(on("troubleshooting.md", "sh")) if line.startswith("curl")]
    assert json.loads(beginner.types(curl))["status"] == "ok"


def uploads(beginner: Beginner) -> None:
    """docs/files.md: a file goes in by a signed link and by the address of a server."""
    asking = f"http://127.0.0.1:{beginner.port}/explorer/demo/tools/demo_get_upload_url/call"
    link: dict[str, Any] = httpx2.post(asking, json={}).json()["structuredContent"]
    (curl,) = lines(on("files.md", "sh", "sha256sum"))
    answer = json.loads(beginner.types(curl, upload_url=str(link["upload_url"])))
    assert answer["upload_handle"].startswith("upload://sessions/")
    upload, download = lines(on("files.md", "sh", "handle="))
    assert "upload://sessions/" in beginner.types(f'{upload}; echo "$handle"')
    url = download.rpartition(" ")[2]
    drawn = json.loads(beginner.types(f"mcp-adapter call {url} draw_chart filename=chart.png --json"))
    download = download.replace("artifact://sessions/…/chart.png", drawn["_meta"]["artifact"]["artifact_uri"])
    assert beginner.types(download) == "chart.png\n"


def calls(beginner: Beginner) -> None:
    """docs/command-line.md: tools are listed, and called with a file that goes up and one that comes back."""
    (beginner.folder / "letter.txt").write_text("Dear reader")
    commands = lines(on("command-line.md", "sh", "path=@letter.txt"))
    listed, one, counted, _ = [beginner.types(each) for each in commands]
    assert "count_words path=@file" in listed and "filename=string" in one and counted == "2\n"
    assert (beginner.folder / "charts" / "chart.png").exists()


def doctor_looks(beginner: Beginner) -> None:
    """docs/operating.md: doctor finds the running adapter, and moves a file through a tool."""
    settings = beginner.folder / "data" / "demo" / "config.yaml"
    for command in lines(on("operating.md", "sh", "doctor")):
        found = beginner.types(command.replace("config.yaml", str(settings)))
        assert "WRONG" not in found and "ok" in found


def test_the_command_line_page(beginner: Beginner) -> None:
    """Each command of docs/command-line.md that ends by itself, in an empty folder with the files of two clients."""
    for place in (beginner.home / ".cursor", beginner.folder / ".vscode"):
        place.mkdir()
    server = {"url": "http://127.0.0.1:9/mcp"}
    (beginner.home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"one": server}}))
    (beginner.folder / ".vscode" / "mcp.json").write_text(json.dumps({"servers": {"two": server}}))
    config = beginner.folder / "config.yaml"
    empty, of_cursor, of_vscode = lines(on("command-line.md", "sh", ".cursor"))
    beginner.types(empty)
    config.unlink()
    beginner.types(of_cursor)
    beginner.types(of_vscode)
    assert (beginner.folder / "adapter.yaml").exists()
    assert [entry["id"] for entry in yaml.safe_load(config.read_text())["servers"]] == ["one"]
    plain, effective, _, as_json = lines(on("command-line.md", "sh", "--effective"))
    assert "config.yaml is fine: 1 server." in beginner.types(plain)
    assert yaml.safe_load(beginner.types(effective))["core"]["host"] == "127.0.0.1"
    assert json.loads(beginner.types(as_json))["ok"] is True
    beginner.types(*lines(on("command-line.md", "sh", "config schema")))
    assert json.loads((beginner.folder / "config.schema.json").read_text())["properties"]["servers"]


def test_a_server_is_put_online(beginner: Beginner) -> None:
    """docs/online.md: its settings, one below the other, ask for a token and serve with one, under the public name."""
    tree: dict[str, Any] = {}
    for block in blocks("yaml"):
        if block.page.name == "online.md":
            for key, value in yaml.safe_load(block.text).items():
                tree[key] = {**tree[key], **value} if key in tree else value
    tree["core"]["port"] = beginner.port
    (beginner.folder / "config.yaml").write_text(yaml.safe_dump(tree))
    export, serve = lines(on("online.md", "sh", "ADA_TOKEN"))
    (beginner.programs / "npx").symlink_to("/bin/cat")
    tokens = {"ADA_TOKEN": "a" * 32, "BEA_TOKEN": "b" * 32}
    beginner.types(f'{export}; test "${{#BEA_TOKEN}}" -eq 64')
    assert "config.yaml is fine: 1 server." in beginner.types("mcp-adapter check", **tokens)
    with beginner.runs(serve, ready="serving", **tokens):
        url = f"http://127.0.0.1:{beginner.port}/mcp/files"
        ask: Callable[..., httpx2.Response] = httpx2.get
        name = {"Host": "mcp.example.com"}
        assert ask(url, headers=name).status_code == 401
        assert ask(url, headers={**name, "Authorization": f"Bearer {'b' * 32}"}).status_code != 401
        assert ask(url, headers={"Host": "elsewhere.example.com"}).status_code == 421


def test_the_proxy_of_the_page_is_accepted(tmp_path: Path) -> None:
    """docs/operating.md: nginx accepts the lines for it within a server."""
    text = on("operating.md", "nginx").text
    inside = f"events {{}} http {{ access_log off; server {{ listen 127.0.0.1:{free_port()}; {text} }} }}"
    file = tmp_path / "nginx.conf"
    file.write_text(f"pid {tmp_path}/pid; error_log stderr; {inside}")
    try:
        tested = subprocess.run(["nginx", "-t", "-c", file], capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        pytest.skip("nginx is not installed")
    assert tested.returncode == 0, tested.stderr
