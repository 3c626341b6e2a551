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
        ({}, {"host": "0.0.0.0"}, "core.auth is not enabled"),
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


def test_operators_have_a_token_on_a_port_that_others_reach() -> None:
    """On a loopback address, or a port of its own, nobody needs one."""
    auth = {"enabled": True, "token": "secret-of-the-operator"}
    prometheus = loaded({}, host="0.0.0.0", auth=auth).telemetry.prometheus
    assert prometheus.needs_credentials("0.0.0.0")
    assert not prometheus.needs_credentials("127.0.0.1")
    assert not loaded({"port": 9464}).telemetry.prometheus.needs_credentials("0.0.0.0")
