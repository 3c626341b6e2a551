"""Keys that set nothing any more: the file loads without them, and whoever wrote one is told."""

from __future__ import annotations

from pathlib import Path

import yaml

from adapter.settings.cautions import cautions
from adapter.settings.file.load import load

LEGACY = "state_persistence.reconciliation.legacy_server_id"


def told_of(tmp_path: Path, reconciliation: object) -> dict[str, str]:
    file = tmp_path / "config.yaml"
    upstream = {"transport": "stdio", "command": "x", "restart": {"delay_seconds": 2}}
    state = {"state_persistence": {"reconciliation": reconciliation}}
    file.write_text(yaml.safe_dump({"servers": [{"id": "a", "upstream": upstream}], **state}))
    return {each.path: each.sentence for each in cautions(load(file, environ={}))}


def test_a_retired_key_is_told_with_what_holds(tmp_path: Path) -> None:
    """Also one in an entry of a list, by its place there."""
    told = told_of(tmp_path, {"legacy_server_id": "a"})
    assert told[LEGACY] == "has no effect: files without a record are given to nobody; remove it"
    assert told["servers[0].upstream.restart"].startswith(
        "has no effect: the pause between failed starts doubles"
    )


def test_a_retired_section_is_told_as_a_whole(tmp_path: Path) -> None:
    """Whatever keys it has."""
    file = tmp_path / "config.yaml"
    servers = [{"id": "a", "upstream": {"url": "http://u/"}}]
    file.write_text(yaml.safe_dump({"servers": servers, "validation": {"max_steps": 5, "x": 1}}))
    told = {each.path: each.sentence for each in cautions(load(file, environ={}))}
    assert told["validation"].startswith("has no effect: a check takes at most 2 s")


def test_a_retired_key_without_a_value_is_not_told(tmp_path: Path) -> None:
    """Files that spell out every default ask for nothing; what is no section is left to the ordinary checks."""
    assert LEGACY not in told_of(tmp_path, {"legacy_server_id": None})
    assert LEGACY not in told_of(tmp_path, None)
