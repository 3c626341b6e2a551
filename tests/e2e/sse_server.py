"""``python -m tests.e2e.sse_server [PORT]``: a server of the Python SDK over HTTP+SSE, and all that it can do."""

from __future__ import annotations

import asyncio

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from tests.e2e.serving import serve

server = MCPServer("over-sse", instructions="Ask me.")


class Sum(BaseModel):
    total: int


@server.tool()
def echo(text: str) -> str:
    """Gives back what it was given."""
    return f"you said {text}"


@server.tool()
def add(numbers: list[int]) -> Sum:
    """Answers with structured content."""
    return Sum(total=sum(numbers))


@server.tool()
async def steps(count: int, context: Context) -> str:
    """Reports progress on the way."""
    for number in range(count):
        await context.report_progress(number, count, f"step {number}")
    return "done"


@server.tool()
async def wait(seconds: float) -> str:
    """Answers after a while. Prints ``waiting`` when it was called, so that a test knows it is under way."""
    print("waiting", flush=True)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise
    return "waited"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("this tool fails")


@server.resource("notes://today")
def today() -> str:
    """A note."""
    return "Buy milk. Kaufe Käse."


@server.resource("notes://{day}")
def note(day: str) -> str:
    """A note of a day."""
    return f"Nothing on {day}."


@server.prompt()
def greet(name: str = "you") -> str:
    """Greets."""
    return f"Say hello to {name}."


if __name__ == "__main__":
    serve(lambda: server.sse_app(sse_path="/mcp"))
