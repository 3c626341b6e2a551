"""``python -m deploy.registry [BUNDLE.mcpb] > server.json``: the entry of this version in the MCP registry.

Its form is that of https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json. It starts ``connect``,
which makes any remote MCP server one over stdio, in each form that a release has: the package by uvx, the image, and,
if its file is named, the bundle. Who owns the name is read from the Source of pyproject.toml, as by setup.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from adapter.version import VERSION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCE: str = PROJECT["urls"]["Source"]
OWNER, REPOSITORY = SOURCE.split("/")[-2:]
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
NAME = f"io.github.{OWNER}/{PROJECT['name']}"
IMAGE = f"ghcr.io/{OWNER}/{REPOSITORY}".lower()
"""Without a tag, as its registry writes it."""


def entry(bundle: Path | None) -> dict[str, Any]:
    """The entry; ``bundle`` is a file of the release at the Source."""
    return {
        "$schema": SCHEMA,
        "name": NAME,
        "title": PROJECT["name"],
        "description": PROJECT["description"],
        "version": VERSION,
        "websiteUrl": PROJECT["urls"]["Homepage"],
        "repository": {"url": SOURCE, "source": "github"},
        "packages": [_package(), _image(), *([] if bundle is None else [_bundle(bundle)])],
    }


def _package() -> dict[str, Any]:
    # Hosts write the identifier with its version behind these arguments; the extra comes with the other requirement.
    extra = {"type": "named", "name": "--with", "value": f"{PROJECT['name']}[client]=={VERSION}"}
    return {
        "registryType": "pypi",
        "identifier": PROJECT["name"],
        "version": VERSION,
        "runtimeHint": "uvx",
        "runtimeArguments": [extra],
        **_connect(signs_in=True),
    }


def _image() -> dict[str, Any]:
    # No browser comes back to a container.
    return {"registryType": "oci", "identifier": f"{IMAGE}:{VERSION}", **_connect(signs_in=False)}


def _bundle(file: Path) -> dict[str, Any]:
    return {
        "registryType": "mcpb",
        "identifier": f"{SOURCE}/releases/download/v{VERSION}/{file.name}",
        "fileSha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "transport": {"type": "stdio"},
    }


def _connect(*, signs_in: bool) -> dict[str, Any]:
    url = {
        "type": "positional",
        "valueHint": "url",
        "description": "Address of the remote MCP server",
        "isRequired": True,
        "placeholder": "https://mcp.example.com/mcp",
    }
    token = {
        "name": "MCP_ADAPTER_TOKEN",
        "description": "Token for the server; without one people sign in with a browser",
        "isRequired": not signs_in,
        "isSecret": True,
    }
    return {
        "transport": {"type": "stdio"},
        "packageArguments": [{"type": "positional", "value": "connect"}, url],
        "environmentVariables": [token],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m deploy.registry")
    parser.add_argument("bundle", type=Path, nargs="?")
    text = json.dumps(entry(parser.parse_args().bundle), indent=2, ensure_ascii=False)
    sys.stdout.write(f"{text}\n")
