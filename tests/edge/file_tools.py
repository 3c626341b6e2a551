"""Tools that move files, played by a raw upstream, and a raw client that calls them and uploads for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG
from typing import Any

import orjson

from tests.edge.raw import Exchange, RawClient, result

MIB = 1024 * 1024
FORM = "multipart/form-data; boundary=b"

READS = {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}
WRITES = {"type": "artifact_producer", "tools": ["write"], "output_path_argument": "filename"}
NAMES = {"type": "artifact_producer", "tools": ["name"], "output_locator": {"mode": "regex"}}
TOOLS = {"adapters": [READS, WRITES, NAMES]}
DOWNLOADS = {"allow_artifacts_download": True}

Tool = Callable[[dict[str, Any]], str]
"""A tool of the upstream: its arguments, to the text it answers."""


def playing(tool: Tool) -> Callable[[Exchange], Any]:
    """An upstream with one tool, and nothing else."""

    async def script(exchange: Exchange) -> None:
        params: Any = exchange.message["params"]
        if exchange.message["method"] == "tools/call":
            await exchange.json(result(1, tool(params["arguments"])))
        else:
            await exchange.json(
                b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}'
            )

    return script


def writing(content: bytes) -> Tool:
    """Writes where it is told, and says where that was."""

    def write(arguments: dict[str, Any]) -> str:
        Path(arguments["filename"]).write_bytes(content)
        return f"Saved to {arguments['filename']}."

    return write


async def call(client: RawClient, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return await rpc(client, "tools/call", {"name": tool, "arguments": arguments})


async def rpc(client: RawClient, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request, or its error."""
    message = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    _, body = await client.request("POST", message)
    response = orjson.loads(body)
    answer: dict[str, Any] = response.get("result") or response["error"]
    return answer


def form(content: bytes, name: str = "note.txt") -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n--b--\r\n' % (
        name.encode(),
        content,
    )


async def upload(client: RawClient, content: bytes, name: str = "note.txt") -> tuple[int, dict[str, Any]]:
    """Status and answer of an upload into the client's session."""
    head, body = await client.request("POST", form(content, name), "/upload/raw", content_type=FORM)
    return head.status, orjson.loads(body)


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["content"][0]["text"]
    return text


def link_of(answer: dict[str, Any]) -> str:
    """The path of the download URL in a result."""
    url: str = answer["_meta"]["artifact"]["download_url"]
    return "/artifacts/" + url.partition("/artifacts/")[2]


def size_below(directory: Path) -> int:
    """Add up the sizes of the files that are there; one that goes away while it is counted has none."""
    return sum(_size(path) for path in directory.rglob("*"))


def _size(path: Path) -> int:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    return status.st_size if S_ISREG(status.st_mode) else 0
