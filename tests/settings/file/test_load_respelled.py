"""Keys of remote-mcp-adapter that say what another key says too: they are read as that key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings.file.load import load
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError

CONSUMER: dict[str, Any] = {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}
RAW: dict[str, Any] = {"overrides": {"allow_raw_output": True}}
PRODUCER: dict[str, Any] = {"type": "artifact_producer", "tools": ["draw"], "allow_raw_output": False, **RAW}


def loaded(tmp_path: Path, more: dict[str, Any], **environ: str) -> Settings:
    file, server = tmp_path / "config.yaml", {"id": "a", "upstream": {"url": "http://u/"}}
    entries = more.pop("adapters", [])
    file.write_text(yaml.safe_dump({"servers": [{**server, "adapters": entries}], **more}))
    return load(file, environ=environ)


@pytest.mark.parametrize(("prefix", "delivery"), [(True, "file_uri"), ("true", "file_uri"), (False, "path")])
def test_adapters(tmp_path: Path, prefix: object, delivery: str) -> None:
    """A prefix is a delivery; an override of raw output wins over what its entry says, and says nothing of uploads."""
    entries = [{**CONSUMER, **RAW, "uri_prefix": prefix, "edits": True}, PRODUCER]
    consumer, producer = loaded(tmp_path, {"adapters": entries}).servers[0].adapters
    assert consumer.type == "upload_consumer" and consumer.delivery == delivery
    assert producer.type == "artifact_producer" and producer.allow_raw_output is True


POLICY, ROOTS = "artifact_locator_policy", {"artifact_locator_allowed_roots": ["/a"]}


@pytest.mark.parametrize(
    ("storage", "roots", "grace"),
    [
        ({POLICY: "storage_only", **ROOTS}, 0, 300),
        ({POLICY: "allow_configured_roots", **ROOTS}, 1, 300),
        ({"orphan_sweeper_enabled": False, "orphan_sweeper_grace_seconds": 5}, 0, None),
        ({"orphan_sweeper_enabled": True, "orphan_sweeper_grace_seconds": 5}, 0, 5),
        ({"orphan_sweeper_enabled": None}, 0, 300),
    ],
)
def test_storage(tmp_path: Path, storage: dict[str, Any], roots: int, grace: float | None) -> None:
    """What is switched off stays off, whatever its other key says."""
    found = loaded(tmp_path, {"storage": storage}).storage
    assert (len(found.artifact_locator_allowed_roots), found.orphan_sweeper_grace_seconds) == (roots, grace)


@pytest.mark.parametrize(
    ("telemetry", "endpoint"),
    [
        ({}, "https://localhost:4317"),
        ({"endpoint": "http://c:1"}, "https://c:1"),
        ({"endpoint": "http://c:1", "transport": "http"}, "http://c:1"),
        ({"endpoint": "http://c:1", "insecure": True}, "http://c:1"),
    ],
)
def test_grpc_with_tls_is_a_scheme(tmp_path: Path, telemetry: dict[str, Any], endpoint: str) -> None:
    """What was to be encrypted still is."""
    found = loaded(tmp_path, {"telemetry": {"insecure": False, **telemetry}}).telemetry
    assert found.endpoint == endpoint


def test_a_variable_says_it_too(tmp_path: Path) -> None:
    """As for any key."""
    found = loaded(tmp_path, {}, ADAPTER_STORAGE__ORPHAN_SWEEPER_ENABLED="false")
    assert found.storage.orphan_sweeper_grace_seconds is None


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        ("storage.orphan_sweeper_enabled", "maybe", ".orphan_sweeper_enabled: is not a known key"),
        ("storage.artifact_locator_policy", "all", ".artifact_locator_policy: is not a known key"),
        ("state_persistence.reconciliation", {"mode": "always"}, "mode: must be disabled or if_empty"),
        ("state_persistence.reconciliation", {"mod": "x"}, "reconciliation: is not a known key"),
    ],
)
def test_other_values_are_refused(tmp_path: Path, place: str, value: object, sentence: str) -> None:
    """None of them is taken for one of both."""
    section, _, key = place.partition(".")
    with pytest.raises(SettingsError, match=sentence):
        loaded(tmp_path, {section: {key: value}})
