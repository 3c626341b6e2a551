"""Settings files that are read, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings.file.load import SettingsError, load
from adapter.settings.root import Settings


def proxied(stages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A file with one upstream whose tools have these stages."""
    return {"servers": [{"id": "a", "upstream": {"url": "http://u/"}, "stages": stages}], **more}


def loaded(
    file: Path, written: str | dict[str, Any], environ: dict[str, str] | None = None, **flags: object
) -> Settings:
    """The settings of a file with this text, or these values; a flag has ``__`` for each dot of its key."""
    text = written if isinstance(written, str) else yaml.safe_dump(written, sort_keys=False)
    file.write_text(text, encoding="utf-8")
    overrides = {key.replace("__", "."): value for key, value in flags.items()}
    return load(file, environ=environ or {}, overrides=overrides)


def refusal(
    file: Path, written: str | dict[str, Any], environ: dict[str, str] | None = None, **flags: object
) -> str:
    """The sentences with which it is refused."""
    with pytest.raises(SettingsError) as refused:
        loaded(file, written, environ, **flags)
    return str(refused.value)
