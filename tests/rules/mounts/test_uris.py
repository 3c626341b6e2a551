"""URIs of a merged mount: one owner for each, and a way back from whatever clients see."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.mounts.member_ids import downward
from adapter.rules.mounts.uris import (
    LONGEST_COMPARED,
    MOST_BLOCKS,
    MOST_COMPARED,
    ServerUris,
    UriTable,
    told_apart,
)
from adapter.wire.spans import edit

IDS = st.sampled_from(["a", "b", "A-b", "c_d"])
URIS = st.one_of(
    st.sampled_from(
        ["x:1", "x:2", "ui://x/1", "mount://a/x:1", "mount://b", "ui://mount/b/x", "file:///a b"]
    ),
    st.text(max_size=20),
)


def table(lists: dict[str, list[str]] | None = None, /, **more: tuple[list[str], list[str]]) -> UriTable:
    servers = [ServerUris(server, uris, []) for server, uris in (lists or {}).items()]
    return UriTable([*servers, *(ServerUris(server, *more[server]) for server in more)])


@given(st.dictionaries(IDS, st.lists(URIS, max_size=5), min_size=1, max_size=4), IDS, URIS)
def test_a_shown_uri_leads_back(lists: dict[str, list[str]], server: str, uri: str) -> None:
    """Whatever a server says, listed or not, comes back to this server as it said it."""
    mount = table(lists)
    for each, uris in lists.items():
        for listed in (*uris, uri):
            assert mount.owner(mount.shown(each, listed)) == (each, listed)


def test_a_uri_of_one_server_stays_what_it_is() -> None:
    """The first of two that list it owns it; the other's has a mark."""
    mount = table(a=(["x:1", "x:2"], []), b=(["x:2", "x:3"], []))
    assert [mount.shown("a", uri) for uri in ("x:1", "x:2")] == ["x:1", "x:2"]
    assert [mount.shown("b", uri) for uri in ("x:2", "x:3")] == ["mount://b/x:2", "x:3"]
    assert mount.owner("x:3") == ("b", "x:3")
    assert mount.owner("x:4") is None
    assert mount.owner("mount://nobody/x:4") is None


def test_a_mark_is_read_in_small_letters_too() -> None:
    """Libraries write a host so."""
    assert table({"Shop": [], "b": []}).owner("mount://shop/x:1") == ("Shop", "x:1")


def test_a_widget_stays_a_widget() -> None:
    """Hosts look at the scheme."""
    mount = table(a=(["ui://w/1"], []), b=(["ui://w/1"], []))
    assert mount.shown("b", "ui://w/1") == told_apart("b", "ui://w/1") == "ui://mount/b/w/1"
    assert mount.owner("ui://mount/b/w/1") == ("b", "ui://w/1")


def test_a_template_owns_what_fits_it() -> None:
    """The one with more in it before its first variable goes first; a URI that is listed goes before both."""
    mount = table(a=([], ["x:{id}"]), b=(["x:7"], ["x:1{id}", "x:{id}", "{+all}"]))
    assert mount.owner("x:2") == ("a", "x:2")
    assert mount.owner("x:12") == ("b", "x:12")
    assert mount.owner("x:7") == ("b", "x:7")
    assert mount.owner("y:1") is None
    assert mount.shown_template("a", "x:{id}") == "x:{id}"
    assert mount.shown_template("b", "x:{id}") == "mount://b/x:{id}"
    assert mount.shown_template("b", "{+all}") == "mount://b/{+all}"


def test_a_single_server_owns_everything() -> None:
    """Nothing has to be told apart."""
    mount = table(a=([], ["{+all}"]))
    assert mount.owner("y:1") == ("a", "y:1")
    assert mount.shown("a", "y:1") == "y:1"
    assert mount.shown_template("a", "{+all}") == "{+all}"


def test_files_of_the_adapter_are_passed_from_server_to_server() -> None:
    """Tools of other servers take them as they are."""
    mount = UriTable([ServerUris("a"), ServerUris("b")], ("artifact://",))
    assert mount.shown("a", "artifact://x/y") == "artifact://x/y"


def test_links_in_results_lead_back() -> None:
    """Only URIs change that clients would read from another server, and all other bytes stay."""
    mount = table(a=(["x:1"], []), b=([], []))
    result: dict[str, Any] = {
        "content": [
            {"type": "text", "text": "x:1"},
            {"type": "resource_link", "uri": "x:1", "name": "n"},
            {"type": "resource", "resource": {"uri": "x:9", "text": ""}},
        ],
        "contents": [{"uri": "x:1"}, 3],
        "messages": [{"role": "user", "content": {"type": "resource_link", "uri": "x:1"}}],
        "_meta": {"ui": {"resourceUri": "ui://w"}, "ui/resourceUri": "ui://w"},
        "structuredContent": {"uri": "x:1"},
    }
    response = json.dumps({"result": result}).encode()
    changed = json.loads(edit(response, mount.edits("b", result, ("result",))))["result"]
    assert [each.get("uri") for each in changed["content"]] == [None, "mount://b/x:1", None]
    assert changed["content"][2]["resource"]["uri"] == "mount://b/x:9"
    assert changed["contents"][0]["uri"] == "mount://b/x:1"
    assert changed["messages"][0]["content"]["uri"] == "mount://b/x:1"
    assert changed["_meta"] == {"ui": {"resourceUri": "ui://mount/b/w"}, "ui/resourceUri": "ui://mount/b/w"}
    assert changed["structuredContent"] == {"uri": "x:1"}
    assert mount.edits("a", {"content": [{"type": "resource_link", "uri": "x:1"}]}) == []


def test_many_links_and_long_ones_are_compared_with_no_templates() -> None:
    """They lead back to their server all the same, and those that a server lists stay; of far too many none changes."""
    mount = table(a=([], ["x:{a}"]), b=(["y:1"], ["z:{b}"]))

    def shown(uris: list[str]) -> list[str]:
        blocks = [{"type": "resource_link", "uri": uri} for uri in uris]
        said = downward("b", json.dumps({"result": {"content": blocks}}).encode(), uris=lambda: mount)
        return [each["uri"] for each in json.loads(said)["result"]["content"]]

    long = "z:" + "1" * LONGEST_COMPARED
    assert shown(["y:1", "z:1", "x:1", long]) == ["y:1", "z:1", "mount://b/x:1", f"mount://b/{long}"]
    assert shown(["y:1"] + ["z:1"] * MOST_COMPARED) == ["y:1"] + ["mount://b/z:1"] * MOST_COMPARED
    assert mount.owner("mount://b/z:1") == ("b", "z:1")
    assert shown(["x:1"] * (MOST_BLOCKS + 1)) == ["x:1"] * (MOST_BLOCKS + 1)
