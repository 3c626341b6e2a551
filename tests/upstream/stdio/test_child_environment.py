"""The environment of a child: an allow-list, names that are added to it, and what is given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapter.upstream.stdio.child import INHERITED, child_environment
from adapter.upstream.stdio.failures import secrets_of

OWN = {
    "PATH": "/bin",
    "HOME": "/home/x",
    "LC_ALL": "C",
    "LC_TIME": "C",
    "TZ": "UTC",
    "AWS_SECRET_ACCESS_KEY": "s3cret-1",
    "MCP_ADAPTER_TOKEN": "s3cret-2",
    "HTTPS_PROXY": "http://user:pw@proxy",
    "PLAYWRIGHT_BROWSERS_PATH": "/b",
    "PLAYWRIGHT_DEBUG": "1",
    "PATHOLOGY": "1",
}
names = st.text("ABC_", min_size=1, max_size=4)


def test_only_harmless_variables_are_inherited() -> None:
    """Whatever else the adapter has, secrets among it, stays with it."""
    assert child_environment(OWN) == {
        "PATH": "/bin",
        "HOME": "/home/x",
        "LC_ALL": "C",
        "LC_TIME": "C",
        "TZ": "UTC",
    }


def test_more_names_can_be_inherited() -> None:
    """A star at the end stands for any characters; a name that is not set is nothing."""
    inherit = ["HTTPS_PROXY", "PLAYWRIGHT_*", "NOT_SET"]
    assert child_environment(OWN, inherit).keys() - child_environment(OWN).keys() == {
        "HTTPS_PROXY",
        "PLAYWRIGHT_BROWSERS_PATH",
        "PLAYWRIGHT_DEBUG",
    }


def test_what_is_given_counts_more() -> None:
    """A given variable replaces an inherited one."""
    assert child_environment({"PATH": "/bin"}, given={"PATH": "/opt", "A": "1"}) == {"PATH": "/opt", "A": "1"}


@given(st.dictionaries(names, names), st.lists(names), st.dictionaries(names, names))
def test_nothing_comes_from_nowhere(own: dict[str, str], inherit: list[str], given: dict[str, str]) -> None:
    """Each variable is a given one or the adapter's own, by a name that was listed."""
    for name, text in child_environment(own, inherit, given).items():
        assert given.get(name) == text or (own[name] == text and name in {*inherit, *INHERITED})


def test_values_under_telling_names_are_secrets() -> None:
    """The longest first, so that no secret is hidden in half; a short value would hide ordinary words."""
    environment = {"TOKEN": "abcdef", "API_KEY": "abcdefgh", "PASSWORD": "no", "NAME": "long enough"}
    assert secrets_of(environment) == ("abcdefgh", "abcdef")
