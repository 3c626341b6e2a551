"""The process that reads changed settings, and what it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.settings.file.changed import FileWatch
from adapter.settings.file.reading import SettingsSource

READER = """
import os, pickle, sys
told = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(ValueError(os.environ.get("A_SECRET"), told.get("A_SECRET"))))
"""


async def test_programs_can_read_no_secret_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that may be secrets come over a pipe; what was found wrong is raised here."""
    monkeypatch.setenv("A_SECRET", "value")
    with pytest.raises(ValueError) as refused:
        await SettingsSource(["-c", READER], FileWatch(None)).read()
    assert refused.value.args == (None, "value")


async def test_a_process_that_fails_is_told(tmp_path: Path) -> None:
    """It has written to standard error what there was to say."""
    source = SettingsSource([str(tmp_path / "missing.py")], FileWatch(None))
    with pytest.raises(ChildProcessError, match="has failed"):
        await source.read()
