"""The address by which other replicas find this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.app.base import Base
from adapter.app.build import build
from adapter.app.replicas import ReplicaService, advertised
from adapter.rules.access.replicas import is_replica_id
from adapter.settings.root import Settings
from adapter.state.watched import WatchedStore
from tests.state.shared import SharedMemory
from tests.waiting import until

BOUND = ("10.0.0.5", 8932)


@pytest.mark.parametrize(
    ("address", "bound", "url"),
    [
        (None, BOUND, "http://10.0.0.5:8932"),
        (None, ("::1", 1), "http://[::1]:1"),
        (None, ("adapter.local", 1), "http://adapter.local:1"),
        ("pod-3.adapter", BOUND, "http://pod-3.adapter:8932"),
        ("pod-3.adapter:9000", BOUND, "http://pod-3.adapter:9000"),
        ("[fd00::7]", BOUND, "http://[fd00::7]:8932"),
        ("https://pod-3.adapter", BOUND, "https://pod-3.adapter"),
        ("https://pod-3.adapter:444", None, "https://pod-3.adapter:444"),
        ("pod-3.adapter", None, "http://pod-3.adapter"),
        (None, None, None),
    ],
)
def test_the_settings_and_what_is_bound_make_the_address(
    address: str | None, bound: tuple[str, int] | None, url: str | None
) -> None:
    """A host gets the port that is bound; a URL is taken as it is."""
    assert advertised(address, bound) == url


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (None, "http://10.0.0.5:8932"),
        ("host", "http://host:8932"),
        ("host:1", "http://host:8932"),
        ("https://host:1", "http://host:8932"),
    ],
)
def test_processes_at_one_port_have_ports_of_their_own(address: str | None, url: str) -> None:
    """The settings are those of all, so only the host can be."""
    assert advertised(address, BOUND, alone=False) == url


@pytest.mark.parametrize(
    ("replica", "alone", "place", "named"),
    [
        ({}, True, None, ""),
        ({"id": "a"}, True, None, "a"),
        ({"id": "a"}, False, ("10.0.0.4", 0), "a-"),
        ({"id": "a" * 64}, False, ("10.0.0.4", 0), "a" * 47 + "-"),
    ],
)
def test_processes_at_one_port_differ(
    replica: dict[str, str], alone: bool, place: tuple[str, int] | None, named: str
) -> None:
    """Each has a name and a port for the others, whatever the settings name; on one machine they need no network."""
    settings = Settings.model_validate(
        {"core": {"host": "10.0.0.4", "replica": replica}, "state_persistence": {"type": "redis"}}
    )
    store = WatchedStore(SharedMemory().replica())
    parts = [ReplicaService(Base(settings, store), alone=alone) for _ in range(2)]
    assert {each.place for each in parts} == {place}
    local = Settings.model_validate({"core": {"host": "10.0.0.4", "replica": replica}})
    near = ReplicaService(Base(local, store), alone=alone)
    assert near.place == (place if alone else ("127.0.0.1", 0))
    names = [each.replicas.id for each in parts]
    assert all(name.startswith(named) and is_replica_id(name) for name in names)
    assert (len(set(names)) == 2) == (not alone or named == "")


@pytest.mark.parametrize("anywhere", ["0.0.0.0", "::", ""])
def test_any_address_is_the_hosts_own(anywhere: str) -> None:
    """Others cannot connect to an address that means all."""
    url = advertised(None, (anywhere, 8932))
    assert url is not None
    assert url.startswith("http://")
    assert url.endswith(":8932")
    assert "0.0.0.0" not in url
    assert "[::]" not in url


async def test_a_host_without_an_address_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Inside a host's application only the settings know the address; without it sessions are not shared."""
    place = {"transport": "stdio", "command": "cat"}
    entry = {"id": "raw", "mount_path": "/mcp", "upstream": place}
    settings = {"core": {"port": 0}, "storage": {"root": str(tmp_path)}, "servers": [entry]}
    store = SharedMemory().replica()
    app = build(Settings.model_validate(settings), store=store)
    parts = app.replicas
    assert parts is not None
    await parts.join(None)
    assert "core.replica.address" in capfd.readouterr().err
    await parts.leave()
    await parts.close()
    assert await store.scan("replicas") == []


async def test_key_of_replicas_is_read_again_after_a_start_without_the_store(tmp_path: Path) -> None:
    """A process that began in memory made a key of its own; when the store is back it has that of the others."""
    memory = SharedMemory()
    state = {"type": "redis", "unavailable_policy": "fallback_memory", "redis": {"host": "localhost"}}
    entry = {"id": "one", "mount_path": "/mcp", "upstream": {"url": "http://127.0.0.1:9/mcp"}}
    settings = {"storage": {"root": str(tmp_path)}, "state_persistence": state, "servers": [entry]}
    there, away = (build(Settings.model_validate(settings), store=memory.replica()) for _ in range(2))
    ours, theirs = away.replicas, there.replicas
    assert ours is not None and theirs is not None
    await there.store.open()
    await theirs.join(BOUND)
    memory.replicas[1].down = True
    await away.store.open()
    assert away.store.outage() is None
    await ours.join(BOUND)
    assert away.store.outage() is not None and ours.replicas.key != theirs.replicas.key
    memory.replicas[1].down = False
    await until(lambda: not (away.store.outage() is not None or ours.replicas.key != theirs.replicas.key))
    for app in (away, there):
        assert app.replicas is not None
        await app.replicas.close()
        await app.store.close()
