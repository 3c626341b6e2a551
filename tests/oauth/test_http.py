"""Requests to authorization servers over sockets."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adapter.errors import UpstreamBroken
from adapter.oauth.http import LARGEST, IssuerHttp
from tests.oauth.authorization_server import INTROSPECTION, KEYS, AuthorizationServer


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


def test_the_library_is_loaded_with_the_first_request() -> None:
    """An adapter that starts does not wait for it."""
    code = "import sys, adapter.oauth.http; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
