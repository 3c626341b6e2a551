"""A lock file that cannot be read is a sentence, not a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.app.tools import locks
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError


def with_lock(lock: Path) -> Settings:
    server = {"id": "one", "upstream": {"url": "http://127.0.0.1:1/mcp"}, "tools_lock": str(lock)}
    return Settings.model_validate({"servers": [server]})


def test_missing_lock_file_is_named(tmp_path: Path) -> None:
    """With the setting that names it."""
    with pytest.raises(SettingsError, match=r"servers\[0\]\.tools_lock.*No such file"):
        locks(with_lock(tmp_path / "tools.lock"))


def test_damaged_lock_file_is_named(tmp_path: Path) -> None:
    """With the line that cannot be read."""
    lock = tmp_path / "tools.lock"
    lock.write_text("something else\n")
    with pytest.raises(SettingsError, match=r"servers\[0\]\.tools_lock.*line 1"):
        locks(with_lock(lock))
