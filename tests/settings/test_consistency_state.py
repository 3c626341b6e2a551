"""What several processes cannot share is refused where settings ask for several, and what does nothing is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter.app.run import embedded
from adapter.settings.cautions import cautions
from adapter.settings.file.load import load
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError

HTTP = {"id": "one", "mount_path": "/mcp", "upstream": {"url": "http://127.0.0.1:9/mcp"}}


def read(workers: object, server: dict[str, Any], **sections: Any) -> Settings:
    core = {"workers": workers}
    return load(None, overrides={"core": core, "servers": [{**HTTP, **server}], **sections}, environ={})


REDIS = {"type": "redis", "redis": {"host": "r"}}
ADDRESSES = {"id": "a", "address": "host:1"}


def told(core: dict[str, Any], **state: Any) -> dict[str, str]:
    """The warnings about settings of replicas and their state: sentences by setting."""
    sections = {"core": core, "state_persistence": state, "servers": [HTTP]}
    return {each.path: each.sentence for each in cautions(load(None, overrides=sections, environ={}))}


def places(refused: pytest.ExceptionInfo[SettingsError]) -> list[str]:
    return [problem.path for problem in refused.value.problems]


@pytest.mark.parametrize("workers", [2, "2", "auto", " Auto "])
def test_servers_over_http_and_a_shared_store_will_do(workers: object) -> None:
    """Numbers may come as text, from variables and flags."""
    assert read(workers, {}).core.workers in (2, "auto")


@pytest.mark.parametrize("workers", [0, -1, 257, "many", 1.5])
def test_a_number_of_workers_is_a_number(workers: object) -> None:
    """And not just any: each of them takes memory."""
    with pytest.raises(SettingsError, match=r"core\.workers"):
        read(workers, {})


@pytest.mark.parametrize("workers", [2, "auto"])
def test_state_in_memory_is_one_process_s(workers: object) -> None:
    """The others would know none of its sessions."""
    with pytest.raises(SettingsError, match="memory is for one process") as refused:
        read(workers, {}, state_persistence={"type": "memory"})
    assert places(refused) == ["state_persistence.type"]
    assert read(1, {}, state_persistence={"type": "memory"})


@pytest.mark.parametrize(
    "upstream",
    [{"transport": "stdio", "command": "cat"}, {"transport": "sse", "url": "http://127.0.0.1:9/sse"}],
)
def test_sessions_of_one_process(upstream: dict[str, Any]) -> None:
    """A request in one of them may reach another worker, which hands it on."""
    assert read(2, {"upstream": upstream})


def test_files_are_shared() -> None:
    """Through the store, under one lock."""
    consumer = {"type": "upload_consumer", "tools": ["t"], "file_path_argument": "path"}
    assert read(2, {"adapters": [consumer]})


def test_an_embedded_adapter_starts_no_processes(tmp_path: Path) -> None:
    """How many there are is its host's business."""
    with pytest.raises(SettingsError, match=r"core\.workers"):
        embedded(read(2, {}, storage={"root": str(tmp_path)}))


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_replica_without_others_is_told_of(kind: str) -> None:
    """Nobody asks for its id and its addresses."""
    found = told({"replica": ADDRESSES}, type=kind)
    assert list(found) == ["core.replica.id", "core.replica.address"]
    assert all("shares its state with no other" in sentence for sentence in found.values())
    assert told({"replica": {"id": None, "address": ""}}, type=kind) == {}
    assert told({"replica": ADDRESSES}, **REDIS) == {}


def test_addresses_of_workers_are_told_of() -> None:
    """With one SQLite file all are on one machine."""
    found = told({"workers": 2, "replica": ADDRESSES})
    assert list(found) == ["core.replica.address"]
    assert all("reach each other at 127.0.0.1" in sentence for sentence in found.values())
    assert told({"workers": 2, "replica": ADDRESSES}, **REDIS) == {}


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_time_of_a_cache_that_nobody_has_is_told_of(kind: str) -> None:
    """Only with Redis may changes by others not be heard; the default does no harm where it stands in a file."""
    path = "state_persistence.cache_seconds"
    assert f"no effect with state_persistence.type {kind}" in told({}, type=kind, cache_seconds=5)[path]
    assert told({}, type=kind, cache_seconds=1) == {}
    assert told({}, **REDIS, cache_seconds=5) == {}


@pytest.mark.parametrize("state", [{"type": "disk"}, REDIS], ids=["disk", "redis"])
def test_interval_of_a_lasting_state_is_told_of(state: dict[str, Any]) -> None:
    """A store that keeps each change needs none; the default does no harm where it stands in a file."""
    (path,) = told({}, **state, snapshot_interval_seconds=60)
    assert path == "state_persistence.snapshot_interval_seconds"
    assert told({}, **state, snapshot_interval_seconds=30) == {}
    assert told({}, type="memory", snapshot_interval_seconds=60) == {}
