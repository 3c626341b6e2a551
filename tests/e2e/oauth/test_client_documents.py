"""The adapter as a client that nobody has registered: its id is the URL of a document that the issuer reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.clients.browser import Browser
from tests.e2e.filing import curl, python_host, said
from tests.e2e.oauth.authorization_server import authorization_server
from tests.e2e.oauth.front import protected_adapter
from tests.e2e.oauth.protection import link_of, protected_server
from tests.e2e.processes import listens, start
from tests.nginx import nginx_argv
from tests.ports import free_port
from tests.state.redis.certificates import Authority

pytestmark = pytest.mark.e2e

PEOPLE = ("ada", "bob")


@asynccontextmanager
async def encrypted(place: Path, authority: Authority, port: int, behind: int) -> AsyncIterator[None]:
    """nginx, which speaks TLS at ``port`` for the server at ``behind``."""
    room = place / "nginx"
    room.mkdir()
    certificate, key = authority.issue("front")
    site = f"""
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        location / {{
            proxy_pass http://127.0.0.1:{behind};
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-Proto https;
        }}
    }}"""
    async with await start(nginx_argv(room, site, connections=64), room / "output.log") as running:
        await listens(port, running)
        yield


def token_of(person: str) -> str:
    return f"static-token-of-{person}-for-the-adapter"


async def test_an_issuer_reads_the_adapters_document(
    oauth_programs: None,
    replicas_programs: None,
    fastmcp4_python: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the issuer takes such documents the adapter registers nowhere, and people grant access to this client."""
    authority = Authority(tmp_path)
    # The browser of these people, and the issuer, know who issued the certificate.
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(authority.path))
    port, plain = free_port(), free_port()
    base = f"https://127.0.0.1:{port}"
    document = f"{base}/authorize/upstream/client.json"
    core = {
        "public_base_url": base,
        "trusted_proxies": ["127.0.0.1"],
        "secret": "secret-of-the-adapter" * 2,
        "auth": {"enabled": True, "tokens": [{"name": name, "token": token_of(name)} for name in PEOPLE]},
    }
    async with (
        authorization_server(tmp_path, documents=True) as issuer,
        protected_server(fastmcp4_python, tmp_path, issuer) as upstream,
        protected_adapter(
            tmp_path,
            upstream,
            None,
            port=plain,
            server={"upstream": {"url": upstream, "auth": {"type": "authorization_code"}}, "adapters": []},
            core=core,
        ) as front,
        encrypted(tmp_path, authority, port, plain),
    ):
        told = json.loads((await curl("--cacert", authority.path, document)).body)
        assert told["client_id"] == document
        assert told["redirect_uris"] == [f"{base}/authorize/upstream/callback"]
        for name in PEOPLE:
            headers = {"Authorization": f"Bearer {token_of(name)}"}
            async with python_host(front.url, "2026-07-28", headers) as host:
                link = await link_of(host)
                assert link.startswith(base)
                browser = Browser(name, token=token_of(name))
                page = await asyncio.to_thread(browser.visit, link)
                assert "Access given" in page.text, page
                assert said(await host.call("whoami")) == name
        assert "/reg" not in await issuer.counted()
