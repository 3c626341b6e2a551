"""``python -m deploy.bundle WHEEL BUNDLE.mcpb``: the bundle of ``mcp-adapter connect`` for Claude Desktop.

Its form is that of MANIFEST.md of modelcontextprotocol/mcpb, version 0.4: a program that the host starts with uv, which
installs the wheel in it with what that needs. The same wheel gives the same bytes.
"""

from __future__ import annotations

import json
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from adapter.version import VERSION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

STARTED = '''"""Start ``mcp-adapter connect``. Of a setting that has no value, hosts pass the name in its place."""

import os
import sys

from adapter.__main__ import main


def is_set(value):
    return value and not value.startswith("${")


url, save_to, *folders = sys.argv[1:]
if not is_set(os.environ.get("MCP_ADAPTER_TOKEN", "")):
    os.environ.pop("MCP_ADAPTER_TOKEN", None)
saving = ["--save-to", save_to] if is_set(save_to) else []
sharing = [word for folder in folders if is_set(folder) for word in ("--folder", folder)]
sys.argv = ["mcp-adapter", "connect", *saving, *sharing, "--", url]
sys.exit(main())
'''

_FIRST_DATE = (1980, 1, 1, 0, 0, 0)
_ONE_FILE = 0o100644 << 16


def manifest() -> dict[str, Any]:
    """The manifest of this version."""
    author = PROJECT["authors"][0]
    urls = PROJECT["urls"]
    return {
        "manifest_version": "0.4",
        "name": PROJECT["name"],
        "display_name": "Remote MCP server with files",
        "version": VERSION,
        "description": "Reach a remote MCP server, sign in to it, and exchange files with it",
        "author": {key: author[key] for key in ("name", "email") if key in author},
        "repository": {"type": "git", "url": urls["Source"]},
        "homepage": urls["Homepage"],
        "license": PROJECT["license"],
        "server": {
            "type": "uv",
            "entry_point": "connect.py",
            "mcp_config": {
                "command": "uv",
                "args": [
                    *("run", "--directory", "${__dirname}", "connect.py"),
                    *("${user_config.url}", "${user_config.save_to}", "${user_config.folders}"),
                ],
                "env": {"MCP_ADAPTER_TOKEN": "${user_config.token}"},
            },
        },
        "tools_generated": True,
        "prompts_generated": True,
        "compatibility": {
            "platforms": ["darwin", "linux"],
            "runtimes": {"python": PROJECT["requires-python"]},
        },
        "user_config": {
            "url": {
                "type": "string",
                "title": "Address of the server",
                "description": "Such as https://mcp.example.com/mcp/demo",
                "required": True,
            },
            "token": {
                "type": "string",
                "title": "Token",
                "description": "Only for a server without a sign-in in the browser",
                "sensitive": True,
            },
            "folders": {
                "type": "directory",
                "title": "Folders with files for the server",
                "description": "Tools may be given files of these folders, but no hidden ones",
                "multiple": True,
                "default": [],
            },
            "save_to": {
                "type": "directory",
                "title": "Folder for files from the server",
                "description": "What tools write is saved here, and nothing is overwritten",
            },
        },
    }


def project(wheel: str) -> str:
    """The project that uv installs: the wheel beside it."""
    name = PROJECT["name"]
    return (
        f'[project]\nname = "{name}-bundle"\nversion = "{VERSION}"\n'
        f'requires-python = "{PROJECT["requires-python"]}"\ndependencies = ["{name}[client]"]\n\n'
        f'[tool.uv]\npackage = false\n\n[tool.uv.sources]\n{name} = {{path = "{wheel}"}}\n'
    )


def write(wheel: Path, bundle: Path) -> None:
    """Write the bundle with this wheel."""
    files = {
        "manifest.json": json.dumps(manifest(), indent=2).encode() + b"\n",
        "connect.py": STARTED.encode(),
        "pyproject.toml": project(wheel.name).encode(),
        wheel.name: wheel.read_bytes(),
    }
    with zipfile.ZipFile(bundle, "w") as written:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _FIRST_DATE)
            entry.external_attr, entry.create_system = _ONE_FILE, 3
            written.writestr(entry, content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
