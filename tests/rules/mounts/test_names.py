"""Names of a merged mount: one owner for each, the same in every process."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.mounts.names import HiddenName, NameTable, NamingRules, Owner, ServerNames, accepted
from adapter.rules.text.expressions import NamePattern
from adapter.wire.piecewise import at_once

PREFIXED, PLAIN = NamingRules(), NamingRules(prefixed=False)
IDS = st.text("ab_", min_size=1, max_size=4).filter(lambda each: each[0] != "_")
NAMES = st.one_of(st.text("ab_", max_size=5), st.text(max_size=90), st.text("x", min_size=60, max_size=200))


def names_in(
    rules: NamingRules, server: str, names: Iterable[str], own: frozenset[str] = frozenset()
) -> ServerNames:
    return at_once(ServerNames.of(rules, server, names, own))


def table(rules: NamingRules, /, **lists: list[str]) -> NameTable:
    return NameTable(rules, [names_in(rules, server, names) for server, names in lists.items()])


def denying(pattern: str, *, prefixed: bool = True) -> NamingRules:
    return NamingRules(prefixed=prefixed, deny=(NamePattern(pattern),))


@given(st.dictionaries(IDS, st.lists(NAMES, max_size=6), max_size=4), st.booleans(), st.data())
def test_a_shown_name_leads_back_to_what_it_was_made_of(
    lists: dict[str, list[str]], prefixed: bool, data: st.DataObject
) -> None:
    """Every name of every list is shown, accepted by hosts, and leads back, or is told as hidden."""
    rules = NamingRules(prefixed=prefixed)
    own = {server: frozenset(data.draw(st.sets(st.just(f"{server}_x")))) for server in lists}
    names = [names_in(rules, server, [*lists[server], *own[server]], own[server]) for server in lists]
    mount = NameTable(rules, names)
    hidden = {each.hidden for each in mount.hidden}
    for server in lists:
        for name in (*lists[server], *own[server]):
            shown = mount.shown(server, name)
            assert (shown is None) == (Owner(server, name) in hidden)
            if shown is not None:
                assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", shown)
                assert mount.owner(shown) == (server, name)
    assert all(mount.owner(each.shown) == each.owner != each.hidden for each in mount.hidden)


@given(st.dictionaries(IDS, st.lists(NAMES, max_size=6), max_size=4), NAMES)
def test_an_unlisted_name_is_never_one_of_two_spellings(lists: dict[str, list[str]], asked: str) -> None:
    """A server that is called by a name that no list has would be shown under exactly this name."""
    owner = table(PREFIXED, **lists).owner(asked)
    if owner is not None:
        listed = table(PREFIXED, **{**lists, owner.server: [*lists[owner.server], owner.name]})
        assert listed.owner(asked) == owner


@given(NAMES)
def test_a_name_that_hosts_accept_stays_what_it_is(name: str) -> None:
    """Others are shortened, to the same name every time, and to one that is itself accepted."""
    assert accepted(accepted(name)) == accepted(name)
    assert (accepted(name) == name) == bool(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a_click", "a_click"),
        ("a_files.read all", "a_files_read_all_f6415c45"),
        ("a_" + "x" * 200, "a_" + "x" * 53 + "_05d9b00b"),
    ],
)
def test_shortened_names_are_the_same_in_every_version(name: str, shown: str) -> None:
    """Clients have them in their approvals."""
    assert accepted(name) == shown


def test_the_prefix_is_there_with_one_server_too() -> None:
    """A second server that is added later changes no name."""
    assert table(PREFIXED, a=["click"]).shown("a", "click") == "a_click"
    assert table(PREFIXED, a=["click"], b=["click"]).shown("a", "click") == "a_click"


def test_own_tools_of_a_server_get_no_second_prefix() -> None:
    """A server's own tool of the same name, which the adapter does not show, is not called instead."""
    names = names_in(PREFIXED, "a", ["a_get_upload_url", "a_click"], frozenset({"a_get_upload_url"}))
    mount = NameTable(PREFIXED, [names])
    assert mount.shown("a", "a_get_upload_url") == "a_get_upload_url"
    assert mount.shown("a", "a_click") == "a_a_click"
    assert mount.owner("a_get_upload_url") == ("a", "a_get_upload_url")


def test_no_server_takes_the_name_under_which_another_gets_its_files() -> None:
    """The adapter's own tools have their names before the servers have theirs."""
    files = names_in(PREFIXED, "a_b", ["a_b_get_upload_url"], frozenset({"a_b_get_upload_url"}))
    thief = names_in(PREFIXED, "a", ["b_get_upload_url"])
    mount = NameTable(PREFIXED, [thief, files])
    assert mount.owner("a_b_get_upload_url") == ("a_b", "a_b_get_upload_url")
    assert [str(each) for each in mount.hidden] == [
        "b_get_upload_url of a is hidden: a_b_get_upload_url belongs to a_b"
    ]


def test_a_name_belongs_to_the_server_that_stands_first() -> None:
    """The other's is hidden, and that is told."""
    mount = table(PLAIN, a=["click"], b=["click", "type"])
    assert mount.owner("click") == ("a", "click")
    assert mount.owner("type") == ("b", "type")
    assert mount.shown("b", "click") is None
    assert mount.hidden == (HiddenName("click", Owner("a", "click"), Owner("b", "click")),)


@pytest.mark.parametrize("known", [["click", "type"], []])
def test_of_prefixes_that_meet_the_longer_one_counts(known: list[str]) -> None:
    """A name may be read as that of two servers: no server takes one that begins like those of another."""
    mount = table(PREFIXED, a=["b_click", "click"], a_b=known)
    assert mount.owner("a_b_click") == ("a_b", "click")
    assert mount.owner("a_b_new") == ("a_b", "new")
    assert mount.owner("a_click") == ("a", "click")
    assert mount.hidden == (HiddenName("a_b_click", Owner("a_b", "click"), Owner("a", "b_click")),)


def test_a_name_that_no_list_has_goes_to_the_server_of_its_prefix() -> None:
    """That server knows callers who see more; without prefixes only a single server can be meant."""
    assert table(PREFIXED, a=[], b=[]).owner("b_new") == ("b", "new")
    assert table(PREFIXED, a=[], b=[]).owner("c_new") is None
    assert table(PREFIXED, a=[], b=[]).owner("b_") is None
    assert table(PLAIN, a=[]).owner("new") == ("a", "new")
    assert table(PLAIN, a=[], b=[]).owner("new") is None


@pytest.mark.parametrize("name", ["delete_all", "DELETE_all"])
def test_a_denied_name_is_neither_shown_nor_called(name: str) -> None:
    """In no spelling, whether a list has it or not."""
    mount = table(denying("a_delete_*"), a=[name], b=["delete_all"])
    assert mount.shown("a", name) is None
    assert mount.owner(f"a_{name}") is None
    assert table(denying("a_delete_*"), a=[]).owner(f"a_{name}") is None
    assert mount.owner("b_delete_all") == ("b", "delete_all")
    assert mount.hidden == ()


def test_a_shortened_name_is_denied_under_both_names() -> None:
    """An operator may know either of them."""
    for pattern in ("a_files.*", "a_files_read_*"):
        assert table(denying(pattern), a=["files.read"]).shown("a", "files.read") is None
    assert table(denying("a_b*"), a=["files.read"]).shown("a", "files.read") is not None


def test_what_allow_does_not_name_is_not_shown() -> None:
    """Patterns are for names as clients see them."""
    mount = table(NamingRules(allow=(NamePattern("a_get_*"),)), a=["get_x", "set_x"])
    assert mount.shown("a", "get_x") == "a_get_x"
    assert mount.owner("a_set_x") is None


def test_of_two_names_that_are_shortened_to_one_the_second_is_hidden() -> None:
    """One that hosts accept as it is wins over one that had to be shortened."""
    short = accepted("a_files.read").removeprefix("a_")
    mount = table(PREFIXED, a=["files.read", short])
    assert mount.shown("a", short) == f"a_{short}"
    assert mount.shown("a", "files.read") is None
    assert len(mount.hidden) == 1


def test_shortened_names_are_told() -> None:
    """An operator sees them before clients do."""
    names = names_in(PREFIXED, "a", ["click", "files.read"])
    assert names.shortened == {accepted("a_files.read")}


def test_only_lists_tell_what_was_shortened() -> None:
    """A process that has none of a server yet must read it before it says which name is meant."""
    mount = table(PREFIXED, a=[], b=[])
    assert mount.is_certain("a_click")
    assert not mount.is_certain(accepted("a_files.read"))
