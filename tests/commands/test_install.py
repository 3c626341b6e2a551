"""Addresses that ``mcp-adapter install`` writes into files of clients."""

from __future__ import annotations

import pytest

from adapter.commands.install import addresses_of
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError


def settings(*mounts: str) -> Settings:
    servers = [{"id": each, "upstream": {"url": "http://u/mcp"}} for each in "abc"]
    merged = [{"id": each, "servers": ["a", "b"]} for each in mounts]
    return Settings.model_validate({"servers": servers, "mounts": merged})


def test_mounts_come_before_servers_that_none_has() -> None:
    """A client that has the mount needs no entry for each of its servers."""
    found = addresses_of(settings("all"), None, None)
    assert [(each.name, each.url.rpartition("8932")[2]) for each in found] == [
        ("all", "/mcp/all"),
        ("c", "/mcp/c"),
    ]
    assert [each.name for each in addresses_of(settings(), None, None)] == ["a", "b", "c"]


def test_one_mount_or_one_server_is_chosen_by_its_id() -> None:
    """Also a server that is in a mount."""
    assert [each.name for each in addresses_of(settings("all"), "all", None)] == ["all"]
    assert [each.name for each in addresses_of(settings("all"), "a", None)] == ["a"]
    with pytest.raises(SettingsError, match="no server has the id d"):
        addresses_of(settings("all"), "d", None)
