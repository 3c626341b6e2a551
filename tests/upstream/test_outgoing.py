"""Requests to servers that a stranger has named go to no neighbour of the adapter's."""

from __future__ import annotations

import pytest

from adapter.errors import UpstreamUnreachable
from adapter.upstream.outgoing import OutgoingHttp, network_kind
from tests.oauth.grants.scripted_issuer import issuing


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
        ("10.1.2.3", "private"),
        ("192.168.0.1", "private"),
        ("fd00::1", "private"),
        ("100.64.0.1", "private"),
        ("169.254.169.254", "local"),
        ("fe80::1%eth0", "local"),
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "local"),
    ],
)
def test_kinds_of_networks(address: str, kind: str) -> None:
    """In every spelling of an address."""
    assert network_kind(address) == kind


async def test_a_name_of_this_machine_is_not_followed_for_a_public_server() -> None:
    """DNS rebinding: the address that is judged is the one that is connected to."""
    async with issuing() as issuer:
        url = f"http://localhost:{issuer.port}/.well-known/oauth-authorization-server"
        with pytest.raises(UpstreamUnreachable):
            await OutgoingHttp(timeout=5, limit=1 << 16, near="8.8.8.8").get(url, {})
        assert issuer.fetched == []
        status, _ = await OutgoingHttp(timeout=5, limit=1 << 16, near="127.0.0.1").get(url, {})
        assert status == 200
        status, _ = await OutgoingHttp(timeout=5, limit=1 << 16).get(url, {})
        assert status == 200
