"""The entry for the MCP registry, and whose name it carries."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from adapter.version import VERSION
from deploy.registry import NAME, ROOT, SOURCE, entry

TEXT = {"type": "string", "minLength": 1}
ADDRESS = {"type": "string", "pattern": r"^https://\S+$", "maxLength": 255}


def closed(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """The schema of an object with these members and no others."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": [*required],
        "additionalProperties": False,
    }


INPUT = {"value": TEXT, "description": TEXT, "placeholder": TEXT, "isRequired": {"type": "boolean"}}
ARGUMENT = {
    "anyOf": [
        closed({"type": {"const": "named"}, "name": TEXT}, **INPUT),
        closed({"type": {"const": "positional"}, "value": TEXT}),
        closed({"type": {"const": "positional"}, "valueHint": TEXT}, **INPUT),
    ]
}
PACKAGE = closed(
    {"registryType": {"enum": ["pypi", "oci", "mcpb"]}, "identifier": TEXT, "transport": {"type": "object"}},
    version={"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
    fileSha256={"type": "string", "pattern": "^[a-f0-9]{64}$"},
    runtimeHint={"enum": ["uvx"]},
    runtimeArguments={"type": "array", "items": ARGUMENT},
    packageArguments={"type": "array", "items": ARGUMENT},
    environmentVariables={
        "type": "array",
        "items": closed({"name": TEXT}, **INPUT, isSecret={"type": "boolean"}),
    },
)
SCHEMA = closed(
    {
        "name": {"type": "string", "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "maxLength": 200},
        "description": {**TEXT, "maxLength": 100},
        "version": {**TEXT, "maxLength": 255},
        "packages": {"type": "array", "items": PACKAGE},
    },
    **{"$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"}},
    title={**TEXT, "maxLength": 100},
    websiteUrl=ADDRESS,
    repository=closed({"url": ADDRESS, "source": TEXT}),
)
"""What the registry's schema of 2025-12-11 asks of the members that the entry has, and no other members."""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    file = tmp_path / "mcp-file-adapter.mcpb"
    file.write_bytes(b"a bundle")
    return file


def test_the_entry_keeps_the_schema(bundle: Path) -> None:
    """With and without a bundle, and as the command prints it."""
    for told in (entry(None), entry(bundle)):
        Draft7Validator(SCHEMA).validate(told)
    command = [sys.executable, "-m", "deploy.registry", str(bundle)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(printed.stdout) == entry(bundle)


def test_the_entry_has_every_form_of_this_version(bundle: Path) -> None:
    """The package, the image and the bundle are those of the version, and all are servers over stdio."""
    told = entry(bundle)
    package, image, bundled = told["packages"]
    assert (told["version"], package["version"], image["identifier"].partition(":")[2]) == (VERSION,) * 3
    assert bundled["identifier"] == f"{SOURCE}/releases/download/v{VERSION}/{bundle.name}"
    assert bundled["fileSha256"] == hashlib.sha256(b"a bundle").hexdigest()
    assert {each["transport"]["type"] for each in told["packages"]} == {"stdio"}
    assert image["identifier"] == image["identifier"].lower()


def test_one_file_says_who_owns_the_name() -> None:
    """Nothing but pyproject.toml names the owner: whoever publishes has one file to change."""
    owner = NAME.removeprefix("io.github.").partition("/")[0]
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    marks = (f"github.com/{owner}/", f"github.{owner}/", f"ghcr.io/{owner}/")
    naming = [
        name
        for name in filter(None, listed)
        if (ROOT / name).is_file() and any(mark.encode() in (ROOT / name).read_bytes() for mark in marks)
    ]
    assert naming == ["pyproject.toml"]
