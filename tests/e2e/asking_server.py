"""``python -m tests.e2e.asking_server [PORT]``: tools that move files and ask their user twice before they do.

The SDK binds what it asks to the arguments that it saw in the first round, and refuses a call that comes with others.
"""

from __future__ import annotations

import hashlib
import urllib.request
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

from tests.e2e.serving import serve

server = MCPServer("asking")


class Title(BaseModel):
    title: str


class Colour(BaseModel):
    colour: str


def ask_title() -> Elicit[Title]:
    return Elicit("Which title?", Title)


def ask_colour(title: Annotated[Title, Resolve(ask_title)]) -> Elicit[Colour]:
    return Elicit(f"Which colour for {title.title}?", Colour)


Asked = Annotated[Colour, Resolve(ask_colour)]
Named = Annotated[Title, Resolve(ask_title)]


def written(filename: str, content: str) -> str:
    Path(filename).write_text(content)
    return f"written to {filename}"


@server.tool()
def paint(seed: int, filename: str, title: Named, colour: Asked) -> str:
    """Asks for a title and a colour, then writes both to a file."""
    return written(filename, f"{seed} {title.title} {colour.colour}")


@server.tool()
def digest(path: str, colour: Asked) -> str:
    """Asks twice, then reads a file by its path."""
    return f"{hashlib.sha256(Path(path).read_bytes()).hexdigest()} {colour.colour}"


@server.tool()
def fetch(url: str, colour: Asked) -> str:
    """Asks twice, then fetches a file by its link."""
    with urllib.request.urlopen(url) as response:
        return f"{hashlib.sha256(response.read()).hexdigest()} {colour.colour}"


@server.tool()
def convert(path: str, filename: str, title: Named, colour: Asked) -> str:
    """Asks twice, then writes what it read in capitals, with the answers behind it."""
    return written(filename, f"{Path(path).read_text().upper()} {title.title} {colour.colour}")


if __name__ == "__main__":
    serve(server.streamable_http_app)
