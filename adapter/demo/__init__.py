"""``mcp-adapter demo``: the adapter in front of a small MCP server, and of a shop that it hosts itself.

running starts and stops it all, welcome is what a person reads, shop fills the database that the files in tools ask.
"""

from __future__ import annotations

from adapter.demo.running import run

__all__ = ("run",)
