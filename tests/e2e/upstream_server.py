"""``python -m tests.e2e.upstream_server [PORT]``: two tools that a test can watch from outside."""

from __future__ import annotations

import asyncio

from mcp.server.mcpserver import MCPServer

from tests.e2e.serving import serve

server = MCPServer("upstream")


@server.tool()
def echo(text: str) -> str:
    """Gives back what it was given."""
    return f"you said {text}"


@server.tool()
async def wait(seconds: float) -> str:
    """Answers after a while. Prints ``waiting`` when it was called, so that a test knows it is under way."""
    print("waiting", flush=True)
    await asyncio.sleep(seconds)
    return "waited"


if __name__ == "__main__":
    serve(server.streamable_http_app)
