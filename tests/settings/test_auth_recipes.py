"""The recipes of the page on access: each is a configuration that can be used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings.file.load import load

PAGE = Path(__file__).parents[2] / "docs" / "access.md"
SERVER = {"id": "notes", "mount_path": "/notes", "upstream": {"url": "http://127.0.0.1:9000/mcp"}}
ISSUER = {"issuer": "https://login.example.org", "required_scopes": ["mcp"]}
CORE = {"public_base_url": "https://tools.example.org", "auth": {"oauth": {"issuers": [ISSUER]}}}


def blocks() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each configuration of the page, with the heading above it."""
    text = PAGE.read_text()
    for found in re.finditer(r"```yaml\n(.*?)```", text, re.DOTALL):
        heading = re.findall(r"^#+ (.*)$", text[: found.start()], re.MULTILINE)[-1]
        yield heading, yaml.safe_load(found[1])


@pytest.mark.parametrize("told", [each for _, each in blocks()], ids=[heading for heading, _ in blocks()])
def test_a_recipe_is_accepted(told: dict[str, Any], tmp_path: Path) -> None:
    """With a server and, where it is about something else, with an issuer."""
    file = tmp_path / "adapter.yaml"
    file.write_text(yaml.safe_dump({"servers": [SERVER], "core": CORE, **told}))
    settings = load(file, environ={"INTROSPECTION_SECRET": "secret-of-the-introspection"})
    assert settings.core.auth.oauth is not None


def test_there_are_five_recipes() -> None:
    """One for each kind of authorization server that people ask for."""
    headings = {heading for heading, _ in blocks()}
    assert {"Keycloak", "Microsoft Entra ID", "Auth0", "Google", "Self-hosted: oidc-provider"} <= headings
