"""https upstreams: who is trusted, and that the same rules hold inside TLS."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.errors import UpstreamUnreachable
from adapter.upstream.http import HttpUpstream
from adapter.upstream.outgoing import IssuerHttp
from tests.upstream.raw_peer import GET, OK, PATIENCE, POST, Site, body_of
from tests.upstream.raw_peer import site as listening

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for localhost, with its key in the same file."""
    pem = tmp_path_factory.mktemp("tls") / "server.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(pem), "-out", str(pem) + ".crt"),
        ],
        check=True,
        capture_output=True,
    )
    pem.write_text(pem.read_text() + Path(str(pem) + ".crt").read_text())
    return pem


@pytest.fixture
async def site(certificate: Path) -> AsyncIterator[Site]:
    """A server that speaks TLS and offers HTTP/1.1 by ALPN."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with listening(context) as server:
        yield server


async def converse(upstream: HttpUpstream, site: Site) -> None:
    """Two calls on one connection, then a body that ends with it."""
    sending = asyncio.create_task(upstream.send(POST, PATIENCE))
    peer = await site.accept()
    assert peer.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    for _ in range(2):
        await peer.request()
        await peer.says(OK)
        assert (await sending).whole == b"{}"
        sending = asyncio.create_task(upstream.send(GET, PATIENCE))
    await peer.request()
    await peer.says(b"HTTP/1.1 200 OK\r\n\r\nbye")
    peer.hang_up()
    assert await body_of(await sending) == b"bye"


async def test_trusted_certificate(site: Site, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that the machine trusts, for the right name, is accepted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    upstream = HttpUpstream(site.url(scheme="https", host="localhost"))
    await converse(upstream, site)
    await upstream.close()


@pytest.mark.parametrize("trusted", [False, True], ids=["unknown issuer", "wrong name"])
async def test_untrusted_certificate(
    site: Site, certificate: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    """An unknown issuer and a wrong name are both refused, in one sentence."""
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    upstream = HttpUpstream(site.url(scheme="https"))
    with pytest.raises(UpstreamUnreachable, match="TLS certificate is not trusted"):
        await upstream.send(POST, PATIENCE)


async def test_a_document_comes_from_a_trusted_server_only(
    site: Site, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked of a server that anybody could be; one that the machine trusts is asked."""
    url = site.url("/keys", scheme="https", host="localhost")
    with pytest.raises(UpstreamUnreachable, match="TLS certificate is not trusted"):
        await IssuerHttp(timeout=PATIENCE).document(url)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    fetching = asyncio.create_task(IssuerHttp(timeout=PATIENCE).document(url))
    peer = await site.accept()
    assert (await peer.request()).startswith(b"GET /keys HTTP/1.1\r\n")
    await peer.says(OK)
    assert await fetching == b"{}"


async def test_insecure_tls_asks_no_questions(site: Site) -> None:
    """``insecure_tls`` accepts any certificate."""
    upstream = HttpUpstream(site.url(scheme="https"), insecure_tls=True)
    await converse(upstream, site)
    await upstream.close()


async def test_server_without_tls() -> None:
    """A server that does not speak TLS is unreachable, not broken: it has read no request."""
    async with listening() as plain:
        upstream = HttpUpstream(plain.url(scheme="https"))
        sending = asyncio.create_task(upstream.send(POST, PATIENCE))
        peer = await plain.accept()
        await peer.says(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(UpstreamUnreachable):
            await sending


async def test_handshake_that_never_ends() -> None:
    """The connect timeout covers the TLS handshake."""
    async with listening() as plain:
        upstream = HttpUpstream(plain.url(scheme="https"), connect_timeout=0.05)
        with pytest.raises(UpstreamUnreachable, match=r"within 0\.05 s"):
            await upstream.send(POST, PATIENCE)
        await (await plain.accept()).left()
        assert repr(upstream).endswith("0 active, 0 idle>")
