"""The text for a person who starts the demo: its address, and commands to paste into another terminal."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

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

_SHOP = """\
shop() {{ curl -sS {base}/explorer/shop/tools/$1/call -H 'Content-Type: application/json' -d "$2"; echo; }}
shop search-products '{{"text": "lamp", "limit": 3}}'
shop get-customer '{{"code": "C-001"}}'
shop orders-of-customer '{{"customer": "C-001", "status": "overdue"}}'
shop sales-by-month '{{"region": "north"}}'
shop forecast '{{"figures": "3677.9, 22164.4, 18798.6, 10310.6", "months": 3}}'
"""

_SIXTH = """\
6. Call the tools of the shop with curl. Their files are in {tools}.

{shop}

"""

_WELCOME = """\
The adapter serves a demo server at

    {url}

and hosts tools for a shop database itself at {base}/mcp/shop.
{page}
Add it to a client:

    {snippet}
    claude mcp add --transport http demo {url}

{count} things to try in another terminal:

1. Open a session with curl. The adapter generates the Mcp-Session-Id header of the answer.

{curl}

2. Ask the MCP inspector for orders (needs Node.js 22).

{inspector}

3. See progress, a question from the server, and a resource.

{tour}

4. Give a tool a file: get an upload URL, upload with curl, and pass the handle to the tool.

{upload}

5. Get a file back, in the same terminal: a tool draws a picture; read it as a resource or by its link.

{download}

{sixth}Health: {base}/healthz
State is stored in {root}; delete that folder to start again. Stop with Ctrl-C.
"""


def welcome(host: str, port: int, root: Path, tools: Path, *, console: bool) -> str:
    """The text printed at the start: ``root`` is the demo's state, ``tools`` are the files of the shop's tools.

    ``console`` tells whether there is a page, with the API behind it.
    """
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
        count="Six" if console else "Five",
        sixth=_SIXTH.format(tools=tools, shop=_SHOP.format(base=base).rstrip()) if console else "",
        page=f"The console at {base}/explorer/ shows both and runs their tools.\n" if console else "",
    )
