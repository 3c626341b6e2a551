"""What an upstream URL may be, and that no header can become a second one."""

from __future__ import annotations

import pytest

from adapter.errors import BadRequest
from adapter.rules.access.headers import SharedFields
from adapter.upstream.http import LONGEST_KEPT, UpstreamAddress
from adapter.upstream.port import UpstreamRequest


@pytest.mark.parametrize(
    ("url", "line", "host"),
    [
        ("http://127.0.0.1:8080/mcp", "/mcp", "127.0.0.1:8080"),
        ("http://example.org", "/", "example.org"),
        ("http://example.org:80/", "/", "example.org"),
        ("https://example.org:443/a?key=b&c#frag", "/a?key=b&c", "example.org"),
        ("https://example.org:80/", "/", "example.org:80"),
        ("http://[::1]:9/mcp", "/mcp", "[::1]:9"),
        ("http://bücher.example/straße?ä", "/stra%C3%9Fe?%C3%A4", "xn--bcher-kva.example"),
        ("http://EXAMPLE.org/a%20b", "/a%20b", "example.org"),
    ],
)
def test_request_line_and_host(url: str, line: str, host: str) -> None:
    """The URL becomes a request target and a Host without default port."""
    assert UpstreamAddress(url).head(UpstreamRequest("GET", [])) == (
        f"GET {line} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    )


@pytest.mark.parametrize(
    "url",
    [
        *(
            "ftp://example.org/",
            "example.org/mcp",
            "http://",
            "http:///mcp",
            "http://a b/",
            "http://h/\r\nX: y",
        ),
        *("http://user:secret@example.org/", "http://h:99999/", "http://h:x/"),
    ],
)
def test_unusable_url(url: str) -> None:
    """A URL that cannot be used is a ValueError that does not repeat it."""
    with pytest.raises(ValueError) as raised:
        UpstreamAddress(url)
    assert "secret" not in str(raised.value)


def test_shown_without_query() -> None:
    """The text of an endpoint leaves out the query, which may hold a key."""
    assert str(UpstreamAddress("https://example.org:8443/mcp?key=secret")) == "https://example.org:8443/mcp"


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [
        ("POST", b"", "0"),
        ("POST", b"abc", "3"),
        ("DELETE", b"", None),
        ("GET", b"", None),
        ("DELETE", b"x", "1"),
    ],
)
def test_length_is_sent_where_a_body_may_be(method: str, body: bytes, length: str | None) -> None:
    """POST always has a length, GET and DELETE only with a body."""
    head = UpstreamAddress("http://h/").head(UpstreamRequest(method, [], body)).decode()
    assert head.endswith(f"Content-Length: {length}\r\n\r\n" if length else "Host: h\r\n\r\n")


@pytest.mark.parametrize(
    "field",
    [
        ("X", "a\r\nY: b"),
        ("X", "a\nY: b"),
        ("X", "a\rb"),
        ("X", "a\0b"),
        ("X", "żółw"),
        ("X\r\nY", "b"),
        ("X: y", "b"),
        ("X ", "b"),
        ("", "b"),
        ("Żółw", "b"),
        ("Host", "elsewhere"),
        ("content-length", "5"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
    ],
)
def test_unsafe_field(field: tuple[str, str]) -> None:
    """A field that would end early, start another or move the end of the message is refused, every time."""
    endpoint = UpstreamAddress("http://h/")
    for _ in range(2):
        with pytest.raises(BadRequest):
            endpoint.head(UpstreamRequest("POST", [("Accept", "x"), field]))


@pytest.mark.parametrize("method", ["HEAD", "CONNECT", "get", "GET / HTTP/1.1\r\nX:"])
def test_unsafe_method(method: str) -> None:
    """Only methods whose answers are framed like any other are sent."""
    with pytest.raises(BadRequest):
        UpstreamAddress("http://h/").head(UpstreamRequest(method, []))


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://h/mcp", "/mcp?a=1&b=%20"),
        ("http://h/mcp?key=k", "/mcp?key=k&a=1&b=%20"),
        ("http://h", "/?a=1&b=%20"),
    ],
)
def test_a_requests_query_stands_behind_the_urls_own(url: str, target: str) -> None:
    """Neither takes the other's place."""
    head = UpstreamAddress(url).head(UpstreamRequest("GET", [], query="a=1&b=%20"))
    assert head.startswith(f"GET {target} HTTP/1.1\r\n".encode())


@pytest.mark.parametrize("query", ["a b", "a#b", "a\r\nX: 1", "a%", "a%zz", '"', "é", "\x00"])
def test_what_is_no_query_is_not_sent(query: str) -> None:
    """The request line ends where this module says."""
    with pytest.raises(BadRequest):
        UpstreamAddress("http://h/").head(UpstreamRequest("GET", [], query=query))


@pytest.mark.parametrize("value", ["x", "x" * LONGEST_KEPT])
def test_a_head_of_shared_fields_says_what_each_request_says(value: str) -> None:
    """Method, query and length are each request's own; the fields are the same."""
    shared, address = SharedFields([("X", value)]), UpstreamAddress("http://h/mcp")
    for method, body, query in [
        ("POST", b"{}", ""),
        ("POST", b"[1]", "a=1"),
        ("GET", b"", ""),
        ("POST", b"", ""),
    ]:
        plain = address.head(UpstreamRequest(method, [("X", value)], body, query=query))
        assert address.head(UpstreamRequest(method, shared, body, query=query)) == plain
    other = UpstreamAddress("http://other/").head(UpstreamRequest("POST", shared))
    assert b"\r\nHost: other\r\n" in other


def test_shared_fields_are_checked_like_any() -> None:
    """Also when they are sent again."""
    shared = SharedFields([("Host", "elsewhere")])
    for _ in range(2):
        with pytest.raises(BadRequest):
            UpstreamAddress("http://h/").head(UpstreamRequest("POST", shared))


@pytest.mark.parametrize("value", ["x", "x" * LONGEST_KEPT])
def test_a_field_behind_shared_ones_is_written_as_any(value: str) -> None:
    """Each session adds its id to the same fields, and may not add a line of another kind."""
    shared, address = SharedFields([("X", value)]), UpstreamAddress("http://h/mcp")
    for session in ("a", "b", "a"):
        field = "Mcp-Session-Id", session
        plain = address.head(UpstreamRequest("POST", [("X", value), field], b"{}"))
        assert address.head(UpstreamRequest("POST", shared.followed_by(field), b"{}")) == plain
    for bad in (("Host", "elsewhere"), ("Mcp-Session-Id", "a\r\nX: 1"), ("a b", "")):
        with pytest.raises(BadRequest):
            address.head(UpstreamRequest("POST", shared.followed_by(bad)))
