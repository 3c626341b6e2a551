"""Requests to servers that a stranger has named go to no neighbour of the adapter's."""

from __future__ import annotations

import pytest

from adapter.errors import UpstreamUnreachable
from adapter.upstream.outgoing import OutgoingHttp
from tests.oauth.grants.scripted_issuer import issuing


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"])
async def test_this_machine_is_not_asked_for_a_public_server(host: str) -> None:
    """DNS rebinding: the address that is judged is the one that is connected to, whether it had a name or not."""
    async with issuing() as issuer:
        url = f"http://{host}:{issuer.port}/.well-known/oauth-authorization-server"
        with pytest.raises(UpstreamUnreachable):
            await OutgoingHttp(timeout=5, limit=1 << 16, near="8.8.8.8").get(url, {})
        assert issuer.fetched == []
        status, _ = await OutgoingHttp(timeout=5, limit=1 << 16, near="127.0.0.1").get(url, {})
        assert status == 200
        status, _ = await OutgoingHttp(timeout=5, limit=1 << 16).get(url, {})
        assert status == 200
