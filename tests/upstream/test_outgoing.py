"""Requests to authorization servers over sockets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from adapter.errors import AdapterError, UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.upstream.outgoing import LARGEST, IssuerHttp
from tests.oauth.authorization_server import INTROSPECTION, KEYS, AuthorizationServer, authorization_server
from tests.oauth.grants.scripted_issuer import ScriptedIssuer
from tests.upstream.raw_peer import PATIENCE, Site


@pytest.fixture
async def server() -> AsyncIterator[AuthorizationServer]:
    async with authorization_server() as running:
        yield running


async def test_a_form_is_posted(server: AuthorizationServer) -> None:
    """Its answer comes with any status, since an error is told in its body; a redirect is not followed."""
    http = IssuerHttp()
    server.answers[INTROSPECTION] = {"active": True}
    fields = {"token": "a b&c=ü", "token_type_hint": "access_token"}
    answer = await http.form(server.url(INTROSPECTION), fields, {"Authorization": "Basic x"})
    assert answer == (200, b'{"active": true}')
    assert (server.forms, server.credentials) == ([fields], ["Basic x"])
    for status in (302, 400, 500):
        server.answers[INTROSPECTION] = status
        assert (await http.form(server.url(INTROSPECTION), fields))[0] == status
    assert KEYS not in server.asked


async def test_an_answer_has_a_bound(server: AuthorizationServer) -> None:
    """Beyond it nothing is read."""
    server.answers[INTROSPECTION] = b" " * (LARGEST + 1)
    with pytest.raises(UpstreamBroken, match="larger"):
        await IssuerHttp().form(server.url(INTROSPECTION), {})


async def test_what_is_no_url_is_told(server: AuthorizationServer) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match="URL"):
        await IssuerHttp().document("ftp://127.0.0.1/")
    assert server.asked == []


# --- documents that issuers publish, over real sockets: all of one, or the reason why not ----------------------


async def fetched(site: Site, *answer: bytes, timeout: float = PATIENCE, limit: int = 1 << 20) -> bytes:
    """What comes of a document of which the server says ``answer``."""
    fetching = asyncio.ensure_future(IssuerHttp(timeout=timeout, limit=limit).document(site.url("/keys?a=b")))
    peer = await site.accept()
    request = await peer.request()
    assert request.startswith(b"GET /keys?a=b HTTP/1.1\r\n")
    await peer.says(*answer)
    try:
        return await fetching
    finally:
        await peer.left()


async def test_a_document_comes_whole(site: Site) -> None:
    """However it is cut up; its connection is closed then."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert await fetched(site, head, b"5\r\n{'key\r\n", b"5\r\ns':1}\r\n0\r\n\r\n") == b"{'keys':1}"


@pytest.mark.parametrize(
    ("answer", "failure", "sentence"),
    [
        (
            b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
            UpstreamBroken,
            "The answer has status 302 instead of the document.",
        ),
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone",
            UpstreamBroken,
            "The answer has status 404 instead of the document.",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n0123456789a",
            UpstreamBroken,
            "The document is larger than 10 bytes.",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789a\r\n",
            UpstreamBroken,
            "The document is larger than 10 bytes.",
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n", UpstreamBroken, "The server's answer is not valid HTTP."),
    ],
)
async def test_any_other_answer_is_none(
    site: Site, answer: bytes, failure: type[AdapterError], sentence: str
) -> None:
    """A redirect is not followed, and what is too large is not read to its end."""
    with pytest.raises(failure) as raised:
        await fetched(site, answer, limit=10)
    assert str(raised.value) == sentence


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
async def test_a_document_has_its_time(site: Site, answer: bytes) -> None:
    """All of it: one that begins and then hangs is late too."""
    with pytest.raises(UpstreamSilent):
        await fetched(site, answer, timeout=0.5)


async def test_where_nobody_listens_there_is_no_document(site: Site) -> None:
    """The sentence does not say where that is."""
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    with pytest.raises(UpstreamUnreachable) as raised:
        await IssuerHttp().document(f"http://127.0.0.1:{port}/keys")
    assert str(port) not in str(raised.value)
    with pytest.raises(ValueError, match="URL"):
        await IssuerHttp().document("ftp://127.0.0.1/keys")


def test_an_adapter_without_an_issuer_does_without_the_library() -> None:
    """Only the first document that is fetched loads aiohttp."""
    code = "import sys, adapter.app, adapter.upstream.outgoing; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_no_proxy_of_the_environment_is_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys come from where the settings say, whatever the shell says."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert await fetched(site, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") == b"{}"


# --- servers that a stranger has named ------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"])
async def test_this_machine_is_not_asked_for_a_public_server(host: str) -> None:
    """DNS rebinding: the address that is judged is the one that is connected to, whether it had a name or not."""
    async with ScriptedIssuer() as issuer:
        url = f"http://{host}:{issuer.port}/.well-known/oauth-authorization-server"
        with pytest.raises(UpstreamUnreachable):
            await IssuerHttp(near="8.8.8.8").get(url)
        assert issuer.fetched == []
        status, _ = await IssuerHttp(near="127.0.0.1").get(url)
        assert status == 200
        status, _ = await IssuerHttp().get(url)
        assert status == 200
