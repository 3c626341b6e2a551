"""``python -m tests.e2e.files_server [PORT]``: tools that read files and tools that write them, on the SDK's server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from pathlib import Path

from mcp.server.mcpserver import MCPServer

from tests.e2e.serving import serve

PIECES = 4
"""How many writes a drawing takes: it is not there all at once."""

server = MCPServer("files")


def drawing(seed: int, size: int) -> bytes:
    """What ``draw`` writes."""
    return random.Random(seed).randbytes(size)


@server.tool()
def digest(path: str) -> str:
    """Reads a file; tells its SHA-256, its size and its name."""
    content = Path(path).read_bytes()
    return f"{hashlib.sha256(content).hexdigest()} {len(content)} {Path(path).name}"


@server.tool()
def digests(paths: list[str]) -> str:
    """Reads files; a line for each, as ``digest`` has it."""
    return "\n".join(digest(path) for path in paths)


@server.tool()
def digest_inline(data: str) -> str:
    """The SHA-256 of what it is given in base64, and its size, for a server that shares no disk with the adapter."""
    content = base64.b64decode(data, validate=True)
    return f"{hashlib.sha256(content).hexdigest()} {len(content)}"


@server.tool()
async def draw(seed: int, size: int, filename: str, pause: float = 0) -> str:
    """Writes a file piece by piece, with pauses of so many seconds, and names it."""
    content = drawing(seed, size)
    step = size // PIECES + 1
    with Path(filename).open("wb", buffering=0) as file:
        for start in range(0, size, step):
            file.write(content[start : start + step])
            await asyncio.sleep(pause)
    return f"drawn to {filename}"


@server.tool()
def turn_round(path: str, filename: str) -> str:
    """Reads a file and writes its bytes the other way round; tells from where to where."""
    Path(filename).write_bytes(Path(path).read_bytes()[::-1])
    return f"from {path} to {filename}"


@server.resource("note://upstream")
def note() -> str:
    """A resource of the upstream's own."""
    return "from the upstream"


if __name__ == "__main__":
    serve(server.streamable_http_app)
