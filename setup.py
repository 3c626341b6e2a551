"""The part of the package's metadata that depends on the place where its sources are published.

``REPOSITORY_URL`` (``https://HOST/OWNER/NAME``) is that place, for example of a release build. Links of the README then
lead to the files of this version. Without it they are plain text: on a package index a relative link leads nowhere.
"""

from __future__ import annotations

import os
import re
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
    text = DIAGRAM.sub("", text)
    if not repository:
        return LINK.sub(r"\1", IMAGE.sub("", text))
    text = IMAGE.sub(rf"![\1]({repository}/raw/{tag}/\2)", text)
    return LINK.sub(rf"[\1]({repository}/blob/{tag}/\2)", text)


def project_urls(repository: str, tag: str) -> dict[str, str]:
    """The links beside the README, under the names that indexes know."""
    if not repository:
        return {}
    return {
        "Source": repository,
        "Documentation": f"{repository}/tree/{tag}/docs",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


REPOSITORY, TAG = os.environ.get("REPOSITORY_URL", "").rstrip("/"), f"v{version()}"

setup(
    long_description=readme((HERE / "README.md").read_text(), REPOSITORY, TAG),
    long_description_content_type="text/markdown; variant=GFM",
    project_urls=project_urls(REPOSITORY, TAG),
)
