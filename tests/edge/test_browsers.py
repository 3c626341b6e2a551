"""What pages at other origins are told."""

from __future__ import annotations

from tests.edge.conftest import StartAdapter, StartUpstream

PAGE = "https://app.example.com"
CORS = {"enabled": True, "allowed_origins": [PAGE], "allowed_methods": ["POST"], "allow_credentials": True}


async def test_preflight_names_what_the_settings_allow(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """Methods, credentials and the origin itself come from ``core.cors``."""
    async with upstream() as up, adapter(up, core={"cors": CORS}) as front, front.client() as client:
        head, _ = await client.request("OPTIONS", origin=PAGE, access_control_request_method="POST")
        assert head.status == 204
        assert head["access-control-allow-origin"] == PAGE
        assert head["access-control-allow-methods"] == "POST"
        assert head["access-control-allow-credentials"] == "true"


async def test_credentials_are_not_offered_unasked(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """Without ``allow_credentials`` the field is absent, and another origin's page learns nothing at all."""
    cors = CORS | {"allow_credentials": False}
    async with upstream() as up, adapter(up, core={"cors": cors}) as front, front.client() as client:
        head = await client.initialize(origin=PAGE)
        assert head["access-control-allow-origin"] == PAGE
        assert head.get("access-control-allow-credentials") is None
        head, _ = await client.request("POST", origin="https://evil.example.com")
        assert head.status == 403 and head.get("access-control-allow-origin") is None


async def test_any_header_is_allowed_by_name(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """By default a page may send what headers it likes; the answer names those it asked for."""
    cors = {"enabled": True, "allowed_origins": [PAGE]}
    async with upstream() as up, adapter(up, core={"cors": cors}) as front, front.client() as client:
        asked = "authorization, x-team"
        head, _ = await client.request(
            "OPTIONS",
            origin=PAGE,
            access_control_request_method="POST",
            access_control_request_headers=asked,
        )
        assert head["access-control-allow-headers"] == asked
