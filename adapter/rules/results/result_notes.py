"""The parts of a tool's result that are not its data: what the adapter itself has said there of files. Pure.

They are known by ``_meta``, where the adapter describes each artifact in members that leave no room for anything
else. Code that writes the data anew keeps them. Links that an upstream has made itself are part of its data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adapter.rules.results.tool_results import Shown

_OWN = "adapter/"


@dataclass(frozen=True, slots=True)
class Attachments:
    """A result's content apart: ``data`` is the tool's own, whatever it is, ``links`` say where its files are kept,
    ``files`` are such files themselves. ``members`` are those of the result that the adapter has put there.
    """

    data: Any
    links: tuple[Any, ...]
    files: tuple[Any, ...]
    members: Mapping[str, Any]


def attachments(result: Mapping[str, Any]) -> Attachments:
    """Separate the adapter's part of a result of ``tools/call`` from the tool's part."""
    meta = result.get("_meta")
    shown = list(_artifacts(meta)) if isinstance(meta, Mapping) else []
    members = {"resultType": result["resultType"]} if "resultType" in result else {}
    if isinstance(meta, Mapping) and (own := _own(meta)):
        members["_meta"] = own
    content = result.get("content")
    if not shown or not isinstance(content, list):
        return Attachments(content, (), (), members)
    said = [block for artifact in shown for block in artifact.blocks()]
    uris = {artifact.uri for artifact in shown}
    links = tuple(block for block in content if block in said)
    files = tuple(block for block in content if _embedded(block) in uris)
    data = [block for block in content if block not in said and _embedded(block) not in uris]
    return Attachments(data, links, files, members)


def _own(meta: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in meta.items() if key.startswith(_OWN)}
    if (artifact := _shown(meta.get("artifact"))) is not None:
        kept["artifact"] = artifact.meta
    several = meta.get("artifacts")
    if isinstance(several, list) and (listed := [each.meta for each in map(_shown, several) if each]):
        kept["artifacts"] = listed
    if isinstance(meta.get("artifact_error"), str):
        kept["artifact_error"] = meta["artifact_error"]
    return kept


def _artifacts(meta: Mapping[str, Any]) -> Iterator[Shown]:
    several = meta.get("artifacts")
    for entry in several if isinstance(several, list) else [meta.get("artifact")]:
        if (shown := _shown(entry)) is not None:
            yield shown


def _shown(entry: Any) -> Shown | None:
    """The artifact that an entry describes; None for what the adapter would never have written."""
    if not isinstance(entry, Mapping):
        return None
    shown = Shown(
        uri=entry.get("artifact_uri", ""),
        id=entry.get("artifact_id", ""),
        filename=entry.get("filename", ""),
        media_type=entry.get("mime_type", ""),
        size=entry.get("size_bytes", 0),
        sha256=entry.get("sha256", ""),
        expires_at=entry.get("expires_at"),
        exposed=entry.get("expose_as_resource", False),
        download_url=entry.get("download_url"),
    )
    flat = not any(isinstance(value, Mapping | list) for value in entry.values())
    return shown if flat and shown.meta == entry else None


def _embedded(block: Any) -> str | None:
    """The URI of a resource that is embedded in the content."""
    resource = block.get("resource") if isinstance(block, Mapping) else None
    uri = resource.get("uri") if isinstance(resource, Mapping) else None
    return uri if isinstance(uri, str) else None
