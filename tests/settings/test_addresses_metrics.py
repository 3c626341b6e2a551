"""``telemetry.prometheus``: a place that is free, and readers who may read."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.settings.file.load import load
from adapter.settings.section import SettingsError

SERVER = {"id": "shop", "mount_path": "/mcp", "upstream": {"url": "http://shop/mcp"}}


def loaded(prometheus: dict[str, Any], **core: Any) -> Any:
    prometheus = {"enabled": True, **prometheus}
    return load(
        None,
        overrides={"core": core, "telemetry": {"prometheus": prometheus}, "servers": [SERVER]},
        environ={},
    )


def test_metrics_are_off_unless_they_are_asked_for() -> None:
    """Neither counted nor served."""
    assert not loaded({"enabled": False}).telemetry.measures
    assert loaded({}).telemetry.measures


def test_a_port_of_its_own_is_on_this_machine() -> None:
    """Unless a host says otherwise."""
    assert loaded({"port": 9464}, host="0.0.0.0").telemetry.prometheus.place == ("127.0.0.1", 9464)
    assert loaded({"port": 9464, "host": "::"}).telemetry.prometheus.place == ("::", 9464)
    assert loaded({}).telemetry.prometheus.place is None


@pytest.mark.parametrize(
    ("prometheus", "core", "sentence"),
    [
        ({}, {"host": "0.0.0.0"}, "core.host is not a loopback address and core.auth is not enabled"),
        (
            {},
            {"public_base_url": "https://tools.example"},
            "core.public_base_url is set and core.auth is not",
        ),
        ({}, {"trusted_proxies": ["127.0.0.1"]}, "core.trusted_proxies is set and core.auth is not enabled"),
        ({"host": "127.0.0.1"}, {}, "host is of no use without port"),
        ({"port": 8932, "host": "127.0.0.1"}, {"port": 8932}, "is already core.port"),
        ({"path": "/healthz"}, {}, "is not free: /healthz is a route of the adapter itself"),
        ({"path": "/upload/x"}, {"upload_path": "/upload"}, "is core.upload_path"),
        ({"path": "/mcp"}, {}, "it is the mount_path of shop"),
    ],
)
def test_a_place_that_is_taken_is_refused(
    prometheus: dict[str, Any], core: dict[str, Any], sentence: str
) -> None:
    """With a sentence that names who has it, or what is missing."""
    with pytest.raises(SettingsError, match=sentence):
        loaded(prometheus, **core)


@pytest.mark.parametrize(
    ("prometheus", "core"),
    [
        ({}, {"host": "0.0.0.0", "auth": {"enabled": True, "token": "secret-of-the-operator"}}),
        ({}, {"public_base_url": "http://localhost:8932"}),
        ({"port": 9464}, {"host": "0.0.0.0"}),
    ],
)
def test_metrics_that_nobody_else_reads_are_served(prometheus: dict[str, Any], core: dict[str, Any]) -> None:
    """With tokens, on an adapter that this machine alone reaches, or on a port of their own."""
    assert loaded(prometheus, **core).telemetry.prometheus.enabled
