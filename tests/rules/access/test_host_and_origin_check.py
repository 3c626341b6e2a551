"""Hosts and Origins: what is served, what is not, and that no text makes the question fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.host_and_origin_check import (
    NOSNIFF,
    SANDBOX,
    guarded,
    host_allowed,
    navigates,
    origin_allowed,
    same_authority,
)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8932",
        "localhost.",
        "localhost.:80",
        "127.0.0.1",
        "127.0.0.1:8932",
        "127.8.9.10:1",
        "[::1]",
        "[::1]:8932",
        "[0:0:0:0:0:0:0:1]:8932",
    ],
)
def test_loopback_names_are_served_on_loopback(host: str) -> None:
    """Every spelling of this machine, on any port."""
    assert host_allowed(host, bound_to_loopback=True, allowed=None)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "128.0.0.1",
        "127.1",
        "0.0.0.0",
        "::1",
        "[::2]",
        "[::1",
        "[::1]evil",
        "localhost:8932:1",
        "localhost:port",
        "localhost:999999",
        "user@localhost",
        "localhost/evil",
        "localhost evil",
        "local\x00host",
        "",
        ".",
        ":8932",
        "a" * 100_000,
        None,
    ],
)
def test_a_rebound_name_is_refused_on_loopback(host: str | None) -> None:
    """A page whose domain points at this machine gets nowhere, and neither does nonsense."""
    assert not host_allowed(host, bound_to_loopback=True, allowed=None)


def test_bound_wider_any_host_is_served() -> None:
    """Any name that is one; without a list there is nothing to compare it with."""
    assert host_allowed("adapter.example.com:8932", bound_to_loopback=False, allowed=None)
    assert host_allowed(None, bound_to_loopback=False, allowed=None)
    assert not host_allowed("a/b", bound_to_loopback=False, allowed=None)


@pytest.mark.parametrize(
    ("host", "entry", "served"),
    [
        ("adapter.example.com", "adapter.example.com", True),
        ("Adapter.Example.COM.:99", "adapter.example.com", True),
        ("adapter.example.com:8932", "adapter.example.com:8932", True),
        ("adapter.example.com:8933", "adapter.example.com:8932", False),
        ("adapter.example.com", "adapter.example.com:443", True),
        ("adapter.example.com", "adapter.example.com:8932", False),
        ("example.com", "adapter.example.com", False),
        ("evil-adapter.example.com", "adapter.example.com", False),
        ("[FE80::1]:80", "[fe80::1]", True),
        ("[::1]", "::1", True),
        ("localhost", "adapter.example.com", False),
        ("anything.example", "*", True),
        ("anything.example", "", False),
    ],
)
def test_a_list_of_hosts_is_the_whole_truth(host: str, entry: str, served: bool) -> None:
    """An entry without a port means any port; what is not listed is refused, loopback too."""
    assert host_allowed(host, bound_to_loopback=True, allowed=[entry]) is served


def test_a_request_without_a_host_is_not_on_any_list() -> None:
    """Only a list that names everything holds it."""
    assert not host_allowed(None, bound_to_loopback=False, allowed=["adapter.example.com"])
    assert host_allowed(None, bound_to_loopback=False, allowed=["*"])


def test_no_origin_is_fine() -> None:
    """What is no browser sends none."""
    assert origin_allowed(None, "localhost", allowed=None)


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://localhost:3000", "localhost:8932", True),
        ("http://127.0.0.1", "adapter.example.com", True),
        ("http://[::1]:6274", "localhost", True),
        ("https://adapter.example.com", "adapter.example.com:8932", True),
        ("https://ADAPTER.example.com.", "adapter.example.com", True),
        ("https://evil.example", "localhost:8932", False),
        ("https://evil.example", None, False),
        ("https://localhost.evil.example", "localhost", False),
        ("https://localhost@evil.example", "localhost", False),
        ("https://adapter.example.com.evil.example", "adapter.example.com", False),
        ("vscode-webview://localhost", "localhost", False),
        ("null", "null", False),
        ("NULL", None, False),
        ("localhost", "localhost", False),
        ("", "", False),
        ("://localhost", "localhost", False),
        ("http://", "localhost", False),
        ("http://localhost/path", "localhost", False),
        ("http://localhost http://evil.example", "localhost", False),
    ],
)
def test_same_host_and_loopback_pages_may_call(origin: str, host: str | None, allowed: bool) -> None:
    """Without a list those two kinds may, and no other spelling of them."""
    assert origin_allowed(origin, host, allowed=None) is allowed


@pytest.mark.parametrize(
    ("origin", "entry", "allowed"),
    [
        ("https://app.example.com", "https://app.example.com", True),
        ("https://app.example.com:8443", "https://app.example.com", True),
        ("https://app.example.com", "https://app.example.com:443", True),
        ("https://app.example.com:443", "https://app.example.com:443", True),
        ("https://app.example.com:8443", "https://app.example.com:443", False),
        ("http://app.example.com", "https://app.example.com", False),
        ("http://app.example.com:99", "app.example.com", True),
        ("https://app.example.com", "HTTPS://App.Example.com/", True),
        ("vscode-webview://abc123", "vscode-webview://abc123", True),
        ("https://other.example.com", "app.example.com", False),
        ("https://any.example", "*", True),
        ("null", "*", True),
        ("null", "null", True),
        ("null", "https://null", False),
    ],
)
def test_listed_origins_may_call(origin: str, entry: str, allowed: bool) -> None:
    """An entry is an Origin or a host; without a port it means any, without a scheme any."""
    assert origin_allowed(origin, "adapter.example.com", allowed=[entry]) is allowed


def test_a_list_adds_to_same_host_and_loopback() -> None:
    """Listing one page does not lock out the adapter's own."""
    assert origin_allowed("http://localhost:3000", "localhost", allowed=["https://app.example.com"])


@given(st.text(), st.none() | st.text(), st.lists(st.text(), max_size=3))
def test_no_text_raises(text: str, host: str | None, entries: list[str]) -> None:
    """Hostile headers and odd entries are answered with yes or no."""
    assert host_allowed(text, bound_to_loopback=True, allowed=entries) in (True, False)
    assert origin_allowed(text, host, allowed=entries) in (True, False)
    assert origin_allowed(f"http://{text}", host, allowed=None) in (True, False)


@given(st.from_regex(r"\A[a-z0-9.:\[\]@/-]{0,30}\Z"))
def test_nothing_but_loopback_passes_for_loopback(text: str) -> None:
    """Whatever passes is the name localhost or an address that really is this machine's."""
    if host_allowed(text, bound_to_loopback=True, allowed=None):
        assert text.startswith(("localhost", "127.", "["))


@pytest.mark.parametrize(
    ("scheme", "authority", "host", "same"),
    [
        ("http", "a.example", "a.example", True),
        ("HTTP", "A.example:80", "a.EXAMPLE", True),
        ("https", "a.example", "a.example:443", True),
        ("http", "a.example:8080", "a.example:8080", True),
        ("http", "[::1]:80", "[0:0:0:0:0:0:0:1]", True),
        ("http", "a.example:8080", "a.example", False),
        ("http", "a.example", "b.example", False),
        ("http", "user@a.example", "a.example", False),
        ("http", "", "a.example", False),
        ("ftp", "a.example", "a.example", False),
        ("http", "a.example", "", False),
    ],
)
def test_an_absolute_target_names_the_host_or_another_place(
    scheme: str, authority: str, host: str, same: bool
) -> None:
    """Compared as hosts are, with the port that the scheme implies (RFC 9112, 3.2.2)."""
    assert same_authority(scheme, authority, host) is same


@given(st.text(), st.text(), st.text())
def test_no_target_makes_the_question_fail(scheme: str, authority: str, host: str) -> None:
    """Whatever a request line holds."""
    assert same_authority(scheme, authority, host) in (True, False)


# --- fields that keep a browser from running a mount's answers -------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/problem+json",
        "text/event-stream",
        "text/event-stream;charset=utf-8",
    ],
)
def test_data_is_only_kept_from_being_sniffed(kind: str) -> None:
    """JSON and event streams are no pages."""
    assert guarded([("Content-Type", kind)]) == [("Content-Type", kind), NOSNIFF]


@pytest.mark.parametrize(
    "kinds",
    [
        [],
        [""],
        ["text/html"],
        ["image/svg+xml"],
        ["text/html+json"],
        ["application/xhtml+xml"],
        ["application/json, text/html"],
        ["application/json;a=b, text/html"],
        ["application/json", "text/html"],
        ["text/html", "application/json"],
    ],
    ids=str,
)
def test_whatever_may_be_a_page_is_sandboxed(kinds: list[str]) -> None:
    """Also where an answer names several types, of which browsers choose one by rules of their own."""
    fields = [("content-type", kind) for kind in kinds]
    assert guarded(fields) == [*fields, NOSNIFF, SANDBOX]


@given(st.lists(st.tuples(st.sampled_from(["Content-Type", "X-Else"]), st.text())))
def test_every_answer_says_nosniff(fields: list[tuple[str, str]]) -> None:
    """Behind what it said already, which stays as it was."""
    given_ = guarded(fields)
    assert given_[: len(fields)] == fields
    assert NOSNIFF in given_


@pytest.mark.parametrize(
    ("mode", "said"), [("navigate", True), (" Navigate", True), ("cors", False), (None, False)]
)
def test_a_navigation_says_so(mode: str | None, said: bool) -> None:
    """Sec-Fetch-Mode is the browser's word, which no page can choose."""
    assert navigates(mode) is said
