"""An entry in the settings file of an MCP client: put in or replaced, and everything else stays."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.clients.client_file import CannotEdit, entry_text, with_entry
from adapter.rules.clients.mcp_clients import CLIENTS, Format, ServerAddress

ENTRY = {"url": "http://127.0.0.1/mcp", "args": ["-y", "ä"]}
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9)


def read(kind: Format, text: str) -> Any:
    if kind == "json":
        return json.loads(text)
    return tomllib.loads(text) if kind == "toml" else yaml.safe_load(text)


@pytest.mark.parametrize("kind", ["json", "toml", "yaml"])
@given(name=names)
def test_an_entry_of_any_name_is_found_again(kind: Format, name: str) -> None:
    """In an empty file, whatever it is called."""
    assert read(kind, with_entry("", kind, ["servers"], name, ENTRY)) == {"servers": {name: ENTRY}}


def test_json_keeps_its_order_and_indentation() -> None:
    """And the letters of its texts."""
    old = '{\n\t"z": "ü",\n\t"servers": {\n\t\t"b": {}\n\t},\n\t"a": 1\n}\n'
    new = with_entry(old, "json", ["servers"], "one", {"url": "x"})
    assert new == (
        '{\n\t"z": "ü",\n\t"servers": {\n\t\t"b": {},\n\t\t"one": {\n\t\t\t"url": "x"\n\t\t}\n\t},\n\t"a": 1\n}\n'
    )
    assert with_entry(new, "json", ["servers"], "one", {"url": "x"}) == new
    assert json.loads(with_entry(new, "json", ["servers"], "one", {"url": "y"}))["servers"]["one"] == {
        "url": "y"
    }


def test_toml_and_yaml_keep_their_comments() -> None:
    """Nothing that was there is written anew."""
    toml = '# mine\nmodel = "x"\n\n[mcp_servers.a]\nurl = "y" # b\n'
    new = with_entry(toml, "toml", ["mcp_servers"], "one", ENTRY)
    assert new.startswith(toml.rstrip()) and new.endswith(
        '[mcp_servers.one]\nurl = "http://127.0.0.1/mcp"\nargs = ["-y", "ä"]\n'
    )
    for old in (
        "# mine\nextensions:\n    a: # b\n        x: 1\nz: 2\n",
        "extensions: {}  # none\nz: 2\n",
        "z: 2\n",
        "extensions:\nz: 2\n",
    ):
        edited = with_entry(old, "yaml", ["extensions"], "one", ENTRY)
        before = yaml.safe_load(old)
        others = before.get("extensions") or {}
        assert yaml.safe_load(edited) == {**before, "extensions": {"one": ENTRY, **others}}
        assert all(line in edited for line in old.splitlines() if "{}" not in line)


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("json", "// comment\n{}", "is no JSON or has comments"),
        ("json", "[]", "is not a file of settings"),
        ("json", '{"servers": []}', "holds no servers"),
        ("json", "[" * 100_000, "is no JSON"),
        ("toml", "a = ", "is no TOML"),
        ("toml", '[servers.one]\nurl = "other"\n', "another server called one"),
        ("toml", 'servers = {a = {url = "x"}}\n', "layout is not known"),
        ("yaml", "a: b: c", "is no YAML"),
        ("yaml", "servers: {a: {}}\n", "layout is not known"),
        ("yaml", "- a\n", "is not a file of settings"),
    ],
)
def test_a_file_that_cannot_be_edited_safely(kind: Format, text: str, why: str) -> None:
    """The reason is one sentence; nothing is guessed."""
    with pytest.raises(CannotEdit, match=why):
        with_entry(text, kind, ["servers"], "one", ENTRY)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("token", [None, "MY_TOKEN"])
def test_every_client_has_an_entry(client: str, token: str | None) -> None:
    """It leads to the URL, and names the variable of the token without holding any token."""
    known = CLIENTS[client]
    address = ServerAddress("demo", "http://127.0.0.1:8932/mcp/demo", token)
    text = entry_text(known.format, known.keys, "demo", known.entry(address))
    value = read(known.format, text)
    for key in (*known.keys, "demo"):
        value = value[key]
    assert address.url in json.dumps(value)
    assert ("MY_TOKEN" in text) == (token is not None)
