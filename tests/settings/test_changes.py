"""What of the settings a server's digest covers, and which keys hold as long as a process does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter.settings.changes import DEFAULTS, FREE, digests_of_mounts, digests_of_servers, lasting_digests
from adapter.settings.core import Core
from adapter.settings.file.changed import changed_keys
from adapter.settings.file.load import load
from adapter.settings.root import Settings


def read(**more: Any) -> Settings:
    upstream = {"upstream": {"url": "http://127.0.0.1:9", "static_headers": {"X-Key": "secret"}}}
    servers = [{"id": "one", **upstream}, {"id": "two", **upstream}]
    return load(None, overrides={"servers": servers} | more, environ={})


def changed(**more: Any) -> list[str]:
    return changed_keys(digests_of_servers(read()), digests_of_servers(read(**more)))


def lasting(**more: Any) -> list[str]:
    return changed_keys(lasting_digests(read()), lasting_digests(read(**more)))


def test_the_same_settings_have_the_same_digests() -> None:
    """Whoever writes the file again without a change disturbs nobody."""
    assert changed() == lasting() == []


@pytest.mark.parametrize(
    "core",
    [
        {"defaults": {"tool_call_timeout_seconds": 3}},
        {"upstream": {"max_connections": 3}},
        {"upstream_ping": {"interval_seconds": 3}},
        {"disabled_tools": ["drop"]},
        {"code_mode_enabled": True},
        {"errors": {"expose": "safe"}},
        {"tool_definition_pinning": {"mode": "block"}},
        {"tool_metadata_sanitization": {"mode": "block"}},
        {"tool_description_policy": {"mode": "strip"}},
        {"shorten_descriptions": True},
        {"short_description_max_tokens": 3},
        {"upstream_request_timeout_seconds": 3},
        {"upstream_metadata_cache_ttl_seconds": 3},
    ],
    ids=lambda core: next(iter(core)),
)
def test_a_default_changes_all_servers_that_use_it(core: dict[str, Any]) -> None:
    """It needs no restart."""
    assert changed(core=core) == ["one", "two"]
    assert lasting(core=core) == []


def test_every_default_is_covered() -> None:
    """A key of ``core`` that no digest has would change without anybody's noticing."""
    assert Core.model_fields.keys() >= DEFAULTS | FREE
    assert not any(f"core.{name}" in lasting_digests(read()) for name in DEFAULTS | FREE)


def test_a_secret_is_part_of_a_server() -> None:
    """A changed key of an upstream is a changed server."""
    servers = [
        {"id": name, "upstream": {"url": "http://127.0.0.1:9", "static_headers": {"X-Key": "new"}}}
        for name in ("one", "two")
    ]
    assert changed(servers=servers) == ["one", "two"]


def test_a_file_that_a_server_names_is_part_of_it(tmp_path: Path) -> None:
    """A lock of tools may be written anew."""
    lock = tmp_path / "tools.lock"
    lock.write_text("{}")
    entry = {"id": "one", "upstream": {"url": "http://127.0.0.1:9"}, "tools_lock": str(lock)}
    before = digests_of_servers(read(servers=[entry]))
    lock.write_text('{"one": {}}')
    assert changed_keys(before, digests_of_servers(read(servers=[entry]))) == ["one"]


def test_keys_of_a_process_are_told_by_their_names() -> None:
    """Operators read them in the log."""
    core = {"port": 1, "log_level": "debug", "auth": {"token": "0123456789abcdef0123456789abcdef"}}
    assert lasting(core=core, sessions={"max_active": 3}) == [
        "core.auth",
        "core.log_level",
        "core.port",
        "sessions.max_active",
    ]


def test_the_first_of_a_kind_needs_a_process_that_has_loaded_its_code() -> None:
    """Tools with files, hosted tools and stages, and grants of people are loaded at the start, where they are used."""
    servers: list[dict[str, Any]]
    servers = [{"id": "one", "upstream": {"url": "http://127.0.0.1:9"}, "stages": {"*": {"validate": True}}}]
    assert "servers[].tools" in lasting(servers=servers)
    taker: dict[str, Any] = {"type": "upload_consumer", "tools": ["take"], "file_path_argument": "path"}
    servers = [{"id": "one", "upstream": {"url": "http://127.0.0.1:9"}, "adapters": [taker]}]
    assert lasting(servers=servers) == ["servers[].adapters"]


def test_a_merged_mount_changes_with_its_servers() -> None:
    """One whose servers are the same stays as it is, and none asks for a new process."""
    mounts = [{"id": "all", "servers": ["*"]}, {"id": "first", "servers": ["one"]}]
    servers = [{"id": "one", "upstream": {"url": "http://127.0.0.1:9"}}]
    others = [*servers, {"id": "two", "upstream": {"url": "http://127.0.0.1:9"}}]
    before, after = read(mounts=mounts, servers=servers), read(mounts=mounts, servers=others)
    assert changed_keys(digests_of_mounts(before), digests_of_mounts(after)) == ["all"]
    assert lasting(mounts=mounts) == []


def test_code_of_tools_counts_wherever_it_is(tmp_path: Path) -> None:
    """A process loads it once, so that a changed file asks for another one."""
    code = tmp_path / "work.py"
    code.write_text("def run(): ...")
    tool = {"name": "run", "handler": f"{code}#run"}
    servers = [{"id": "one", "upstream": {"transport": "hosted"}, "tools": {"define": [tool]}}]
    before = lasting_digests(read(servers=servers))
    code.write_text("def run(): return 1")
    assert changed_keys(before, lasting_digests(read(servers=servers))) == ["code of tools"]
