"""The state store that settings ask for: a file that keeps memory, a fresh start, memory while a store fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter import log
from adapter.app.build import build
from adapter.app.run import awake
from adapter.app.state import build_store, refresh, warn_of_unowned
from adapter.errors import StoreUnavailable
from adapter.settings.file.load import SettingsError, load
from adapter.settings.root import Settings
from adapter.state.sqlite import MemoryStore, SqliteStore

SERVER: dict[str, Any] = {"id": "a", "upstream": {"url": "http://127.0.0.1:1/mcp"}}


def settings(root: Path, **state: Any) -> Settings:
    overrides = {"servers": [SERVER], "storage.root": str(root), "core.upstream_ping.enabled": False}
    return load(None, environ={}, overrides={**overrides, "state_persistence": state})


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ({}, None),
        ({"snapshot_interval_seconds": 30}, "state/snapshot.sqlite3"),
        ({"disk": {"local_path": "x.db"}}, "x.db"),
    ],
    ids=["plain", "interval", "path"],
)
def test_memory_is_kept_where_that_is_asked_for(
    tmp_path: Path, state: dict[str, Any], name: str | None
) -> None:
    """Either of the two settings asks; a memory store without them keeps nothing."""
    if name == "x.db":
        state = {"disk": {"local_path": str(tmp_path / "x.db")}}
    found = settings(tmp_path, type="memory", **state)
    assert found.snapshot_path == (None if name is None else tmp_path / name)
    assert isinstance(build_store(found), MemoryStore if name is None else SqliteStore)


async def test_memory_that_is_kept_survives_a_restart(tmp_path: Path) -> None:
    """What one process wrote the next one has."""
    found = settings(tmp_path, type="memory", snapshot_interval_seconds=3600)
    first = build(found)
    async with awake(first):
        await first.store.put("pins", "x", b"1")
    second = build(found)
    async with awake(second):
        row = await second.store.get("pins", "x")
        assert row is not None and row.value == b"1"


@pytest.mark.parametrize("kind", ["disk", "memory"])
async def test_refresh_deletes_all_state(tmp_path: Path, kind: str) -> None:
    """Nothing of an earlier process is left; without the setting everything stays; without a file nothing is made."""
    more = {"type": kind, "snapshot_interval_seconds": 3600}
    fresh = settings(tmp_path, refresh_on_startup=True, **more)
    await refresh(fresh)
    assert not list(tmp_path.iterdir())
    kept = settings(tmp_path, **more)
    for found, there in ((kept, True), (fresh, False)):
        app = build(kept)
        async with awake(app):
            await app.store.put("pins", "x", b"1")
        await refresh(found)
        app = build(kept)
        async with awake(app):
            assert (await app.store.get("pins", "x") is not None) is there


class DeadStore(MemoryStore):
    """Cannot be reached."""

    async def open(self) -> None:
        """See Store."""
        raise StoreUnavailable("The store cannot be reached.")


async def test_adapter_starts_without_its_store_where_it_may(tmp_path: Path) -> None:
    """``fallback_memory`` serves from memory; ``fail_closed`` does not start."""
    app = build(settings(tmp_path, unavailable_policy="fallback_memory"), store=DeadStore())
    async with awake(app):
        assert app.store.outage() == "fallback_memory_activated_during_startup"
        await app.store.put("pins", "x", b"1")
    with pytest.raises(StoreUnavailable):
        async with awake(build(settings(tmp_path), store=DeadStore())):
            pass


async def test_fallback_is_only_there_where_it_is_asked_for(tmp_path: Path) -> None:
    """Memory has nothing to fall back from, and without the policy no call goes through one more object."""
    for state in ({"type": "memory", "unavailable_policy": "fallback_memory"}, {"type": "disk"}):
        app = build(settings(tmp_path, **state))
        assert "Fallback" not in repr(app.store)


async def test_files_of_a_lost_state_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty store with files is a line in the log; a store with scopes is not."""
    (tmp_path / "uploads" / "scope").mkdir(parents=True)
    store = MemoryStore()
    await warn_of_unowned(settings(tmp_path), store, log.get_logger("test"))
    assert "state that is lost" in capsys.readouterr().err
    await store.put("scopes", "scope", b"")
    await warn_of_unowned(settings(tmp_path), store, log.get_logger("test"))
    assert "state that is lost" not in capsys.readouterr().err


def test_state_of_others_is_not_deleted(tmp_path: Path) -> None:
    """A shared store cannot be emptied by each replica that starts."""
    with pytest.raises(SettingsError, match=r"refresh_on_startup: each replica that starts"):
        settings(tmp_path, type="redis", redis={"host": "r"}, refresh_on_startup=True)


def test_disk_stays_sqlite(tmp_path: Path) -> None:
    """The other settings of state change nothing about it."""
    assert type(build_store(settings(tmp_path, snapshot_interval_seconds=30))) is SqliteStore
