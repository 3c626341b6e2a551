"""``python -m tests.e2e.watched_demo PORT FOLDER [SHARED…]``: the demo's server with two tools more, for what its own
do not let a test see: that a call was ended, and what a large file holds.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path

from mcp.server.mcpserver import Context

from adapter.upstream.demo.server import demo_server
from tests.e2e.serving import serve

FOLDER, *SHARED = (Path(argument) for argument in sys.argv[2:])
FOLDER.mkdir(parents=True, exist_ok=True)

server = demo_server(FOLDER, SHARED)


@server.tool()
async def linger(context: Context[None]) -> str:
    """Stays until it is cancelled. Prints ``begun`` and ``cancelled``."""
    print("begun", flush=True)
    try:
        await context.report_progress(1, None, "waiting for nobody")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise
    return "never"


@server.tool()
def digest(path: str) -> str:
    """Tells SHA-256, size and name of a file of any size."""
    content = Path(path).read_bytes()
    return f"{hashlib.sha256(content).hexdigest()} {len(content)} {Path(path).name}"


if __name__ == "__main__":
    serve(server.streamable_http_app)
