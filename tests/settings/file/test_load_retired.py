"""Keys that set nothing any more: the file loads without them, and whoever wrote one is told."""

from __future__ import annotations

from pathlib import Path

import yaml

from adapter.settings.cautions import cautions
from adapter.settings.file.load import load

KEY = "state_persistence.reconciliation"


def told_of(tmp_path: Path, reconciliation: object) -> dict[str, str]:
    file = tmp_path / "config.yaml"
    upstream = {"transport": "stdio", "command": "x", "restart": {"delay_seconds": 2}}
    state = {"state_persistence": {"reconciliation": reconciliation}}
    file.write_text(yaml.safe_dump({"servers": [{"id": "a", "upstream": upstream}], **state}))
    return {each.path: each.sentence for each in cautions(load(file, environ={}))}


def test_a_retired_key_is_told_with_what_holds(tmp_path: Path) -> None:
    """A section as a whole, whatever keys it has; and a key in an entry of a list, by its place there."""
    told = told_of(tmp_path, {"mode": "always", "legacy_server_id": "a"})
    assert told[KEY].startswith("has no effect: a log line tells of files without a record")
    assert told["servers[0].upstream.restart"].startswith(
        "has no effect: the pause between failed starts doubles"
    )


def test_a_retired_key_without_a_value_is_not_told(tmp_path: Path) -> None:
    """Files that spell out every default ask for nothing."""
    assert KEY not in told_of(tmp_path, None)
