"""``mounts[]``: members that are there, paths that are free, and credentials that stay with their server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.settings.loading import loaded, refusal


def server(name: str, upstream: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"id": name, "upstream": {"url": f"http://{name}/mcp", **(upstream or {})}, **more}


def file_with(*mounts: dict[str, Any], servers: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"servers": servers or [server("a"), server("b")], "mounts": list(mounts)}


def test_a_mount_has_its_servers_in_its_order(tmp_path: Path) -> None:
    """The path follows the id, and the prefix is there unless somebody says otherwise."""
    settings = loaded(tmp_path / "a.yaml", file_with({"id": "all", "servers": ["b", "a"]}))
    (mount,) = settings.mounts
    assert mount.path == "/mcp/all"
    assert mount.prefix == "{server}_"
    assert [each.id for each in settings.members_of(mount)] == ["b", "a"]


def test_a_star_is_all_servers_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Also written as a list."""
    for star in ("*", ["*"]):
        settings = loaded(tmp_path / "a.yaml", file_with({"id": "all", "servers": star, "prefix": "none"}))
        assert [each.id for each in settings.members_of(settings.mounts[0])] == ["a", "b"]


@pytest.mark.parametrize(
    ("mount", "sentence"),
    [
        ({"id": "A"}, "mounts[0].id: A is already the id of servers[0]"),
        ({"id": "a b"}, "must begin with a letter or digit"),
        ({"servers": ["a", "c"]}, "mounts[0].servers[1]: there is no server with the id c"),
        ({"servers": ["a", "b", "a"]}, "mounts[0].servers[2]: a is named twice"),
        ({"servers": ["a", "*"]}, "mounts[0].servers[1]: * stands alone"),
        ({"servers": []}, "names no server"),
        ({"servers": None}, "mounts[0].servers"),
        ({"path": "/mcp/a"}, "mounts[0].path: /mcp/a is already the mount_path of servers[0]"),
        ({"path": "/artifacts/x"}, "is a route of the adapter itself"),
        ({"path": "/upload/x"}, "is below core.upload_path"),
        ({"prefix": "x_"}, "mounts[0].prefix"),
        ({"tools": {"deny": ["a/../b"]}}, "is not a pattern"),
        ({"list_timeout_seconds": 0}, "mounts[0].list_timeout_seconds"),
    ],
)
def test_a_mount_that_cannot_be_meant_is_refused(
    mount: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    """With a sentence that names who is in the way."""
    assert sentence in refusal(tmp_path / "a.yaml", file_with({"id": "all", "servers": "*", **mount}))


def test_two_mounts_share_neither_id_nor_path(tmp_path: Path) -> None:
    """Each of them is named."""
    first = {"id": "all", "servers": "*"}
    sentences = refusal(tmp_path / "a.yaml", file_with(first, {**first, "id": "ALL", "path": "/mcp/all"}))
    assert "mounts[1].id: ALL is already the id of mounts[0]" in sentences
    assert "mounts[1].path: /mcp/all is already the path of mounts[0]" in sentences


@pytest.mark.parametrize(
    ("upstream", "header"),
    [
        ({"auth": {"type": "passthrough"}}, "a gets Authorization from the client"),
        ({"client_headers": {"passthrough": ["X-Key"]}}, "a gets X-Key from the client"),
    ],
)
def test_what_a_client_sends_for_one_server_is_not_sent_by_mistake(
    upstream: dict[str, Any], header: str, tmp_path: Path
) -> None:
    """A server that gets it is in a mount only where that server says so."""
    mount = {"id": "all", "servers": "*"}
    refused = file_with(mount, servers=[server("a", upstream), server("b")])
    sentence = refusal(tmp_path / "a.yaml", refused)
    assert header in sentence
    assert "set in_mounts: true at that server" in sentence
    loaded(tmp_path / "a.yaml", file_with({**mount, "servers": ["b"]}, servers=refused["servers"]))
    loaded(tmp_path / "a.yaml", file_with(mount, servers=[server("a", upstream, in_mounts=True)]))


def test_required_headers_are_no_secret_of_one_server(tmp_path: Path) -> None:
    """Without them that server is missing in the mount, and nothing else."""
    needy = server("a", {"client_headers": {"required": ["X-Tenant"]}})
    loaded(tmp_path / "a.yaml", file_with({"id": "all", "servers": "*"}, servers=[needy]))


def test_the_console_stays_above_no_mount(tmp_path: Path) -> None:
    """Its path is not that of a merged mount."""
    file = file_with({"id": "all", "servers": "*", "path": "/console"})
    assert "/console is the path of the mount all" in refusal(
        tmp_path / "a.yaml", {**file, "console": {"enabled": True, "path": "/console"}}
    )
