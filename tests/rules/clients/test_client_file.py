"""An entry in the settings file of an MCP client: put in or replaced, and everything else stays."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.clients.client_file import CannotEdit, entry_text, with_entry, without_entry
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
        ("json", '{"servers": {,}}', "layout is not known"),
        ("json", '{"n": NaN}', "is no JSON"),
        ("json", "{} {}", "is no JSON"),
        ("json", '{"servers": {"a": 1 // b}\n', "is no JSON"),
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


FILES: dict[Format, list[str]] = {
    "json": [
        '{"servers": {"b": {}}, "z": [1e999, 1.50, 1E2, -0]}',
        '{\n  "servers": {\n    "b": {}, // note\n  },\n  "n": 1e999,\n  "n": 1,\n}\n',
        '\ufeff{\r\n\t// a "quote", and {\r\n\t"servers": {\r\n\t\t"b": "//" /* x */\r\n\t}\r\n}',
        '{\n  "servers": {"a": 1},\n  "servers": {\n    "b": 1,\n    "b": {"url": "\\ud800"}\n  }\n}  \n\n',
        '{\n    "servers": {\n        "b": [\n            1\n        ]\n        // last\n    }\n}\n',
    ],
    "toml": [
        '# mine\nmodel = "x"\n\n[servers.b]\nurl = "y" # b\n',
        "a = 1\r\n[servers.b]\r\n\r\n# of the end\r\n",
    ],
    "yaml": [
        "# mine\nservers: # here\n    # of b\n    b: # b\n        x: 1\n    # of c\n    c: {}\n# of z\nz: 2\n",
        "servers:\r\n  b: {x: 1e999}\r\n\r\n# of z\r\nz: .5\r\n",
    ],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in FILES.items() for text in texts])
def test_nothing_but_the_entry_changes(kind: Format, text: str) -> None:
    """Comments, ends of lines, marks, duplicate keys and numbers stay, and the file is as it was without the entry."""
    new = with_entry(text, kind, ["servers"], "one", ENTRY)
    assert without_entry(new, kind, ["servers"], "one") == text
    kept = iter(new)
    assert all(character in kept for character in text)
    assert ("\n" in text.replace("\r\n", "")) == ("\n" in new.replace("\r\n", ""))
    assert with_entry(new, kind, ["servers"], "one", ENTRY) == new


@pytest.mark.parametrize(
    ("kind", "text", "rest"),
    [
        ("json", '{"servers": {"one": 1, "b": 2, "one": 3}}', '{"servers": {"b": 2}}'),
        ("json", '{\n  "servers": {\n    "one": 1, // mine\n  }\n}', '{\n  "servers": { // mine\n  }\n}'),
        (
            "json",
            '{\n "servers": {\n  "one": 1,\n  // b\n  "b": 2\n }\n}',
            '{\n "servers": {\n  // b\n  "b": 2\n }\n}',
        ),
        ("json", '{"servers": {\n // b\n "one": 1 }}', '{"servers": {\n // b\n }}'),
        ("json", '{"servers": {\n // b\n "one": 1, "b": 2\n}}', '{"servers": {\n // b\n "b": 2\n}}'),
        ("json", '{"servers": {"b": 1, // b\n "one": 1 /* x */ }}', '{"servers": {"b": 1 // b\n /* x */ }}'),
        ("toml", '[servers.one]\nurl = "x"\n[servers.one.env]\nA = "b"\n\n# b\n[b]\n', "\n# b\n[b]\n"),
        ("yaml", "servers:  # all\n  one:\n    a: 1\nb: 2\n", "servers: {}  # all\nb: 2\n"),
        ("yaml", "servers:\n  one: 1\n  # c\n  c: 2\n", "servers:\n  # c\n  c: 2\n"),
        ("yaml", "b: 2\n", "b: 2\n"),
    ],
)
def test_an_entry_is_taken_out(kind: Format, text: str, rest: str) -> None:
    """With its lines and its comma; comments stay."""
    assert without_entry(text, kind, ["servers"], "one") == rest


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("toml", 'servers = {one = {url = "x"}}\n'),
        ("yaml", "servers: {one: 1}\n"),
        ("yaml", "servers: &all\n  b: 1\n  one: &one {x: 1}\nz: *one\n"),
        ("json", '{"servers": [\n]}'),
        ("json", '{"servers": {' + '"one": 1, ' * 20_000 + '"b": 2}}'),
    ],
)
def test_an_entry_that_cannot_be_taken_out_stays(kind: Format, text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(CannotEdit):
        without_entry(text, kind, ["servers"], "one")


BLANKS = st.lists(st.sampled_from([" ", "\n", "\r\n\t", '/* "a" , } */', '// "b"{,\n', "//\r\n"]), max_size=3)


@st.composite
def objects(draw: st.DrawFn, depth: int = 2) -> str:
    """An object as people may write it, with ``servers`` in it and in that perhaps ``one``."""

    def blank() -> str:
        return "".join(draw(BLANKS))

    keys = draw(st.lists(st.sampled_from(["a", "servers"] if depth == 2 else ["a", "b", "one"]), max_size=3))
    written = []
    for key in dict.fromkeys(keys) if depth == 2 else keys:
        simple = draw(st.sampled_from(["1", '"//"', '"\\\\"', "[]", '"a,}"', '["/*",1e999]']))
        value = draw(objects(depth - 1)) if key == "servers" else simple
        written.append(f'{blank()}"{key}"{blank()}:{blank()}{value}{blank()}')
    comma = draw(st.sampled_from(["", ","])) if written else ""
    return "{" + ",".join(written) + comma + blank() + "}"


def inside(part: str, whole: str) -> bool:
    """Tell whether all letters of ``part`` are in ``whole``, in their order."""
    rest = iter(whole)
    return all(letter in rest for letter in part)


@given(objects(), st.sampled_from(["", "\ufeff"]))
def test_json_of_any_layout_is_edited(written: str, mark: str) -> None:
    """Only spaces ahead of a brace may go for an entry that comes, and nothing comes for one that goes."""
    text = mark + written
    less = without_entry(text, "json", ["servers"], "one")
    assert inside(less, text)
    more = with_entry(text, "json", ["servers"], "new", ENTRY)
    assert inside("".join(text.split()), more)
    assert with_entry(more, "json", ["servers"], "new", ENTRY) == more
    assert "new" not in without_entry(more, "json", ["servers"], "new")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from([None, 0, 1, "\t", "  "]),
    names,
)
def test_any_json_keeps_its_values(value: Any, indent: Any, name: str) -> None:
    """In each layout, whatever the entry is called; and is the same again without it."""
    text = json.dumps({"a": value, "servers": {"other": value}}, indent=indent, ensure_ascii=False)
    new = with_entry(text, "json", ["servers"], name, ENTRY)
    assert json.loads(new) == {"a": value, "servers": {"other": value, name: ENTRY}}
    if name != "other":
        assert without_entry(new, "json", ["servers"], name) == text


def test_a_goose_extension_has_a_description() -> None:
    """Goose refuses one without."""
    assert CLIENTS["goose"].entry(ServerAddress("demo", "http://127.0.0.1/mcp"))["description"]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("token", [None, "MY_TOKEN"])
@pytest.mark.parametrize("flags", [None, (), ("--folder", "/home/ada/Shared documents")])
def test_every_client_has_an_entry(client: str, token: str | None, flags: tuple[str, ...] | None) -> None:
    """It leads to the URL or to the command, and names the variable of the token without holding any token."""
    known = CLIENTS[client]
    url = "http://127.0.0.1:8932/mcp/demo"
    command = () if flags is None else ("/bin/mcp-adapter", "connect", url, *flags)
    address = ServerAddress("demo", url, token, command)
    text = entry_text(known.format, known.keys, "demo", known.entry(address))
    value = read(known.format, text)
    for key in (*known.keys, "demo"):
        value = value[key]
    assert address.url in json.dumps(value)
    assert ("MY_TOKEN" in text) == (token is not None)
    if command:
        assert [value.get("command") or value["cmd"], *value["args"]][: len(command)] == [*command]
