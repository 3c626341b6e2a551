"""``mcp-adapter demo``: the adapter in front of a small MCP server of its own, with things to try."""

from __future__ import annotations

import errno
import json
import selectors
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from adapter.app import serve
from adapter.settings.load import load

ROOT = Path("data/demo")
"""Where the demo keeps its state between starts, below the directory it was started in."""

_START_SECONDS = 30
_STOP_SECONDS = 5

_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "curl", "version": "1"},
    },
}

_TOUR = """\
import asyncio
from mcp import Client
from mcp_types import ElicitResult

async def show(progress, total, message):
    print("progress:", message)

async def answer(context, question):
    print("the server asks:", question.message)
    return ElicitResult(action="accept", content={{"place": "terrace"}})

async def tour():
    async with Client("{url}", elicitation_callback=answer) as client:
        await client.call_tool("slow_count", {{"steps": 3}}, progress_callback=show)
        print((await client.call_tool("book_table", {{"guests": 3}})).content[0].text)
        print((await client.read_resource("demo://readme")).contents[0].text)

asyncio.run(tour())
"""

_ASK = """\
ask() {{ {python} -c "
import asyncio
from mcp import Client
async def ask():
    async with Client('{url}') as client:
        $1
asyncio.run(ask())"; }}
"""

_UPLOAD = """\
url=$(ask 'print((await client.call_tool("demo_get_upload_url")).structured_content["upload_url"])')
handle=$(echo 'To be, or not to be' | curl -sS -F 'file=@-;filename=hamlet.txt' "$url" |
  grep -o 'upload://[^"]*' | head -n 1)
ask "print((await client.call_tool('count_words', {'path': '$handle'})).content[0].text, 'words')"
"""

_DOWNLOAD = """\
link=$(ask 'print((await client.call_tool("draw_chart", {"filename": "orders.png"})).meta["artifact"]["download_url"])')
uri=$(ask 'print((await client.list_resources()).resources[-1].uri)')
ask "print('$uri', (await client.read_resource('$uri')).contents[0].mime_type)"
curl -sS -o orders.png -w '%{content_type}, %{size_download} bytes\\n' "$link"
"""

_WELCOME = """\
The adapter serves a demo server at

    {url}

Add it to a client:

    {snippet}
    claude mcp add --transport http demo {url}

Five things to try in another terminal:

1. Open a session with curl; the answer's Mcp-Session-Id header is the adapter's own.

{curl}

2. Ask the MCP inspector for orders (needs Node.js 22).

{inspector}

3. See progress, a question of the server, and a resource.

{tour}

4. Give a tool a file: the server says where, curl uploads it there, and the tool takes the handle.

{upload}

5. Get a file back, in the same terminal: a tool draws a picture, which is a resource and a link.

{download}

Health: {base}/healthz
State is kept in {root}; remove that folder to begin anew. Stop with Ctrl-C.
"""


class DemoFailed(Exception):
    """``str(error)`` is the sentence for the person who started the demo."""


def run(host: str, port: int, root: Path | None = None) -> int:
    """Serve until stopped; the process's exit status, 2 when the address cannot be used.

    ``port`` 0 takes a free one. ``root`` (default: ROOT) is created, and used again by the next start. The
    demo server is a process of its own on loopback and ends with this one, however this one ends.
    """
    root = (root or ROOT).absolute()
    try:
        port = _free_port(host, port)
        with _demo_server(root) as upstream:
            settings = load(_configuration(root, host, port, upstream), overrides={}, environ={})
            sys.stdout.write(_welcome(host, port, root))
            sys.stdout.flush()
            return serve(settings)
    except DemoFailed as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _free_port(host: str, port: int) -> int:
    """The port itself, or a free one for 0; asked before anything starts, so a refusal is one sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as listening:
            return int(listening.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            other = f"choose another port: mcp-adapter demo --port {port + 1}"
            raise DemoFailed(
                f"{host}:{port} is in use. Stop the program that listens there, or {other}"
            ) from None
        raise DemoFailed(f"The adapter cannot listen on {host}:{port}: {error.strerror}.") from None


@contextmanager
def _demo_server(root: Path) -> Iterator[str]:
    """The endpoint of a demo server that runs as long as the block does."""
    command = [sys.executable, "-m", "adapter.upstream.demo", "--until-stdin-ends"]
    command += ["--folder", str(root / "files")]
    # Where the adapter puts files for tools and lets tools write; the state beside them is not the server's.
    command += ["--shared", str(root / "uploads"), "--shared", str(root / "artifacts")]
    # Its own process group: Ctrl-C reaches the adapter first, which then lets running calls finish.
    process = subprocess.Popen(  # noqa: S603 - our own module under our own interpreter
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    try:
        yield _first_line(process)
    finally:
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _first_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        said = selector.select(_START_SECONDS) and process.stdout.readline()
    if not said:
        raise DemoFailed("The demo server did not start; what it wrote above says why.")
    return said.decode().strip()


def _configuration(root: Path, host: str, port: int, upstream: str) -> Path:
    """A configuration file like any other, which the curious may read and copy."""
    path = root / "config.yaml"
    settings = {
        "core": {"host": host, "port": port, "allow_artifacts_download": True},
        "storage": {"root": str(root)},
        "servers": [
            {
                "id": "demo",
                "mount_path": "/mcp/demo",
                "upstream": {"url": upstream},
                "adapters": [
                    {
                        "type": "upload_consumer",
                        "tools": ["read_text", "count_words"],
                        "file_path_argument": "path",
                    },
                    {
                        "type": "artifact_producer",
                        "tools": ["write_note", "draw_chart"],
                        "output_path_argument": "filename",
                    },
                ],
            }
        ],
    }
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


def _welcome(host: str, port: int, root: Path) -> str:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 - compared, not bound
    base = f"http://{reachable}:{port}"
    url = f"{base}/mcp/demo"
    curl = (
        f"curl -sS -i {url} -H 'Content-Type: application/json' \\\n"
        f"  -H 'Accept: application/json, text/event-stream' \\\n  -d {shlex.quote(json.dumps(_INITIALIZE))}"
    )
    inspector = (
        f"npx -y @modelcontextprotocol/inspector --cli {url} --transport http \\\n"
        "  --method tools/call --tool-name query_orders --tool-arg customer=C-0001"
    )
    python = shlex.quote(sys.executable)
    return _WELCOME.format(
        url=url,
        base=base,
        root=root,
        snippet=json.dumps({"mcpServers": {"demo": {"type": "http", "url": url}}}),
        curl=curl,
        inspector=inspector,
        tour=f"{python} - <<'END'\n{_TOUR.format(url=url)}END",
        upload=_ASK.format(python=python, url=url) + _UPLOAD.rstrip(),
        download=_DOWNLOAD.rstrip(),
    )
