"""The URLs that add a server to a client."""

from __future__ import annotations

import json
from base64 import b64decode
from urllib.parse import parse_qs, unquote, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.clients.mcp_clients import CLIENTS, ServerAddress, link_to

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(NAMES, st.sampled_from([None, "MCP_ADAPTER_TOKEN"]))
def test_a_link_says_what_the_file_says(name: str, token: str | None) -> None:
    """A client reads the entry of its file out of the URL, whatever the name, and no more parameters."""
    address = ServerAddress(name, "https://tools.example.com/mcp/a?b=c&d=é", token)
    cursor, code = CLIENTS["cursor"], CLIENTS["vscode"]
    parts = urlsplit(str(link_to("cursor", address)))
    assert (parts.scheme, parts.netloc, parts.path) == ("cursor", "anysphere.cursor-deeplink", "/mcp/install")
    told = parse_qs(parts.query, strict_parsing=True)
    assert told.keys() == {"name", "config"} and told["name"] == [name]
    assert json.loads(b64decode(told["config"][0], validate=True)) == cursor.entry(address)

    before, _, query = str(link_to("vscode", address)).partition("?")
    assert before == "vscode:mcp/install" and not set(query) & set("&=+#? ")
    assert json.loads(unquote(query)) == {"name": name, **code.entry(address)}


def test_clients_without_such_urls_have_none() -> None:
    """Only two clients are known to open them."""
    address = ServerAddress("a", "https://tools.example.com/mcp/a")
    assert {name for name in CLIENTS if link_to(name, address)} == {"cursor", "vscode"}
