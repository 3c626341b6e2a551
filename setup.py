"""The long description: the README, whose links lead to the files of this version at the Source of pyproject.toml.

On a package index a relative link leads nowhere, and diagrams are not drawn. The MCP registry looks there for the name
of its entry (deploy/registry.py), to know that both have one owner.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
DIAGRAM = re.compile(r"^```mermaid\n(?:(?!```).*\n)*+```\n\n?", re.MULTILINE)
IMAGE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)]+)\)")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


def version() -> str:
    """The version of the package."""
    (found,) = re.findall(
        r'^VERSION = "([^"]+)"', (HERE / "adapter" / "version.py").read_text(), re.MULTILINE
    )
    return str(found)


def readme(text: str, repository: str, tag: str) -> str:
    """The README for a package index, which shows neither diagrams nor files of the repository."""
    text = IMAGE.sub(rf"![\1]({repository}/raw/{tag}/\2)", DIAGRAM.sub("", text))
    text = LINK.sub(rf"[\1]({repository}/blob/{tag}/\2)", text)
    return f"{text}\n<!-- mcp-name: io.github.{repository.split('/')[-2]}/{PROJECT['name']} -->\n"


PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]

setup(
    long_description=readme((HERE / "README.md").read_text(), PROJECT["urls"]["Source"], f"v{version()}"),
    long_description_content_type="text/markdown; variant=GFM",
)
