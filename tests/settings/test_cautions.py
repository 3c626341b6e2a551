"""Warnings about settings that work, but not for the hosts that they seem to be for."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.settings.cautions import cautions
from adapter.settings.root import Settings

TAKES = [{"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}]
TOKEN = {"auth": {"enabled": True, "token": "a-token-of-more-than-16"}}


@pytest.mark.parametrize(
    ("sessions", "core", "adapters", "words"),
    [
        ({}, {}, TAKES, None),
        ({"scope": "principal"}, {}, TAKES, "share their files"),
        ({"scope": "principal"}, TOKEN, TAKES, None),
        ({"scope": "principal"}, {}, [], None),
        ({"upstream": "principal"}, TOKEN, TAKES, "unknown in their next call"),
        ({"upstream": "principal"}, TOKEN, [], None),
        ({"upstream": "principal", "scope": "principal"}, TOKEN, TAKES, None),
    ],
)
def test_owner_of_files_that_does_not_fit_the_host(
    sessions: dict[str, Any], core: dict[str, Any], adapters: list[Any], words: str | None
) -> None:
    """Said where files are moved, and where the other settings tell what hosts there are."""
    server = {"id": "one", "upstream": {"url": "http://127.0.0.1:1/mcp"}, "adapters": adapters}
    settings = Settings.model_validate({"core": core, "sessions": sessions, "servers": [server]})
    found = [each.sentence for each in cautions(settings) if each.path == "sessions.scope"]
    assert [words in sentence for sentence in found if words] == ([] if words is None else [True])
    assert bool(found) is (words is not None)
