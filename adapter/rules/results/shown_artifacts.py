"""Artifacts as results of tools tell of them: in metadata, in structured content, and as content blocks. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple


class ShownFile(NamedTuple):
    """The file of an artifact as a result tells of it. ``size`` is in bytes, ``sha256`` in hex."""

    filename: str
    media_type: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Shown:
    """An artifact as a result shows it. ``expires_at`` is in the form for clients.

    ``download_url`` is given when downloads are on. ``raw`` is given when the artifact is to be embedded: a text, or
    bytes that are no text.
    """

    uri: str
    id: str
    file: ShownFile
    expires_at: str | float | None
    exposed: bool
    download_url: str | None = None
    raw: str | bytes | None = None

    @property
    def meta(self) -> dict[str, Any]:
        """The entry of ``_meta.artifact``."""
        link = {} if self.download_url is None else {"download_url": self.download_url}
        return {
            "artifact_uri": self.uri,
            "artifact_id": self.id,
            "filename": self.file.filename,
            "mime_type": self.file.media_type,
            "size_bytes": self.file.size,
            "sha256": self.file.sha256,
            "expires_at": self.expires_at,
            "expose_as_resource": self.exposed,
            **link,
        }

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of the list in structured content."""
        link = {} if self.download_url is None else {"download_url": self.download_url}
        return {
            "uri": self.uri,
            "name": self.file.filename,
            "mimeType": self.file.media_type,
            "size": self.file.size,
            "sha256": self.file.sha256,
            **link,
        }

    @property
    def reference(self) -> dict[str, Any]:
        """The entry, which with a link is a file reference of OpenAI's too ("Apps SDK", "File handling", 2026-10)."""
        if self.download_url is None:
            return self.entry
        known = {"file_id": self.id, "mime_type": self.file.media_type, "file_name": self.file.filename}
        return self.entry | known

    def blocks(self) -> Iterator[dict[str, Any]]:
        """The content blocks that are added for it, in their order."""
        yield {
            "type": "resource_link",
            "uri": self.uri,
            "name": self.file.filename,
            "mimeType": self.file.media_type,
            "size": self.file.size,
        }
        if self.download_url is not None:
            url = self.download_url
            yield {"type": "text", "text": f"Artifact download URL: {url}\n[Download artifact]({url})"}
        if self.raw is not None:
            resource: dict[str, Any] = {"uri": self.uri, "mimeType": self.file.media_type}
            if isinstance(self.raw, str):
                resource["text"] = self.raw
            else:
                resource["blob"] = base64.b64encode(self.raw).decode("ascii")
            yield {"type": "resource", "resource": resource}
