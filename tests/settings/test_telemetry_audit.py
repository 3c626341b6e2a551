"""``core.audit``: a log has one place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from adapter.settings.file.load import load
from adapter.settings.telemetry import AuditSettings


def test_nothing_is_recorded_unless_it_is_asked_for() -> None:
    """The section without a place is off."""
    assert not AuditSettings().enabled
    assert AuditSettings.model_validate({"stdout": True}).enabled


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"file": "a", "stdout": True}, "choose one"),
        ({"arguments_key": "k"}, "nothing is recorded"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(values: dict[str, Any], sentence: str) -> None:
    """With a sentence on what to change."""
    with pytest.raises(ValidationError, match=sentence):
        AuditSettings.model_validate(values)


def test_the_file_is_next_to_the_settings(tmp_path: Path) -> None:
    """A relative path is relative to the settings file, wherever the adapter is started."""
    file = tmp_path / "config.yaml"
    file.write_text("core: {audit: {file: audit.log}}\nservers: [{id: a, upstream: {url: 'http://u/mcp'}}]\n")
    assert load(file).core.audit.file == tmp_path / "audit.log"
