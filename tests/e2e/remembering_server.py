"""``python -m tests.e2e.remembering_server [PORT] [stateless]``: tools that keep something for a session, and ask."""

from __future__ import annotations

import sys
from functools import partial

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from tests.e2e.serving import serve

server = MCPServer("remembering")
kept: dict[str, list[str]] = {}


class Name(BaseModel):
    name: str


@server.tool()
def remember(word: str, ctx: Context) -> str:
    """Says all words of the session so far."""
    words = kept.setdefault((ctx.headers or {}).get("mcp-session-id", "none"), [])
    words.append(word)
    return " ".join(words)


@server.tool()
async def greet(ctx: Context) -> str:
    """Asks its caller for a name, tells of its progress and greets."""
    await ctx.report_progress(1, 2)
    answer = await ctx.elicit("Who is there?", Name)
    await ctx.report_progress(2, 2)
    return f"hello {answer.data.name if answer.action == 'accept' else 'stranger'}"


if __name__ == "__main__":
    serve(partial(server.streamable_http_app, stateless_http="stateless" in sys.argv))
