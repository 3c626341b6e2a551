"""Tools that take files in the settings: what may be done with their changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings.file.load import SettingsError, load
from adapter.settings.servers.file_adapters import UploadConsumer


def consumer(place: Path, **keys: Any) -> UploadConsumer:
    """The upload consumer of a file in ``place``."""
    file = place / "config.yaml"
    adapter = {"type": "upload_consumer", "tools": ["edit"], "file_path_argument": "path", **keys}
    server = {"id": "a", "upstream": {"url": "http://127.0.0.1:1/mcp"}, "adapters": [adapter]}
    file.write_text(yaml.safe_dump({"servers": [server]}))
    (found,) = load(file, environ={}).servers[0].adapters
    assert isinstance(found, UploadConsumer)
    return found


@pytest.mark.parametrize("more", [{}, {"delivery": "path"}, {"delivery": "file_uri"}, {"uri_prefix": True}])
def test_a_tool_with_a_path_may_edit(tmp_path: Path, more: dict[str, Any]) -> None:
    """Its changes are in the file, so they can be taken from there."""
    assert consumer(tmp_path, edits=True, **more).edits is True


@pytest.mark.parametrize("delivery", ["base64", "data_uri", "url"])
def test_edits_of_content_are_in_the_result(tmp_path: Path, delivery: str) -> None:
    """A tool that gets no path has nothing to change; the sentence says where its changes are."""
    with pytest.raises(SettingsError, match="mode embedded"):
        consumer(tmp_path, edits=True, delivery=delivery)
    assert consumer(tmp_path, edits=False, delivery=delivery).edits is False
    assert consumer(tmp_path, delivery=delivery).edits is None
