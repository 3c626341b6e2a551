"""What ``doctor`` says of one server."""

from __future__ import annotations

from typing import cast

import pytest
from mcp import Client
from mcp_types import Implementation, ServerCapabilities

from adapter.commands.doctor import right
from adapter.commands.doctor.servers import _greeting
from adapter.upstream.client_connection import McpServer


class Greeted:
    """A client that such a server has greeted."""

    protocol_version = "2025-11-25"
    server_capabilities = ServerCapabilities()

    def __init__(self, version: str) -> None:
        self.server_info = Implementation(name="shop", version=version)


@pytest.mark.parametrize(("version", "who"), [("", "shop"), ("1.2", "shop 1.2")])
def test_a_server_without_a_version_has_its_name_alone(version: str, who: str) -> None:
    """Also where its eras are not known."""
    connection = McpServer(cast(Client, Greeted(version)))
    assert _greeting(connection, ()) == f"{who}, MCP 2025-11-25 (with sessions), offers nothing"
    spoken = f"{who}, era modern; through the adapter MCP 2025-11-25 (with sessions), offers nothing"
    assert _greeting(connection, ["modern"]) == spoken


def test_what_a_server_says_moves_no_cursor() -> None:
    """Its name and its refusals stand in findings, and make no other findings; those in JSON are as they are."""
    assert str(right("server a", "\x1b[2Jshop\nok")) == "ok       server a: \\u001b[2Jshop\n    ok"
