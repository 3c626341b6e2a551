"""One file through one tool: uploaded, handed to the tool, and what the tool wrote downloaded again."""

from __future__ import annotations

import io
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adapter.commands.doctor.findings import Finding, right, wrong
from adapter.commands.doctor.servers import AdapterAddress
from adapter.commands.progress_bar import size
from adapter.commands.upload import HELPER
from adapter.settings.servers.file_adapters import ArtifactProducer, UploadConsumer
from adapter.settings.servers.server import ServerSettings
from adapter.upstream.client.server import McpServer, ServerRefused, connected
from adapter.upstream.client.transfers import TransferFailed, download, upload

CONTENT = b"A file from mcp-adapter doctor.\n"


class RoundTrip(NamedTuple):
    """``tool`` of ``server``; ``arguments`` join those that the adapter fills. Without ``file`` a text of one line."""

    server: ServerSettings
    tool: str
    arguments: Mapping[str, Any]
    file: Path | None = None


async def travel(trip: RoundTrip, adapter: AdapterAddress) -> AsyncIterator[Finding]:
    """Move the file, and say of each step whether it worked. The steps after a failed one are left out."""
    subject = f"tool {trip.tool}"
    taking, giving = _adapters_of(trip)
    if taking is None and giving is None:
        yield wrong(subject, "no adapter is declared for it.", "Name it in servers[].adapters.")
        return
    arguments = dict(trip.arguments)
    try:
        async with connected(adapter.of(trip.server), adapter.headers) as connection:
            if taking is not None:
                handle = await _uploaded(trip, connection)
                arguments[taking.file_path_argument] = handle
                yield right(subject, f"a file was uploaded and has the handle {handle[:9]}…")
            if giving is not None and giving.output_path_argument is not None:
                arguments.setdefault(giving.output_path_argument, "doctor.txt")
            result = await connection.call(trip.tool, arguments)
            yield right(subject, "the call succeeded")
            if giving is not None:
                yield await _fetched(subject, result, connection)
    except (ServerRefused, TransferFailed) as failure:
        yield wrong(
            subject, str(failure), "Pass what the tool needs with --arguments, or correct its adapter."
        )


def _adapters_of(trip: RoundTrip) -> tuple[UploadConsumer | None, ArtifactProducer | None]:
    taking, giving = None, None
    for adapter in trip.server.adapters:
        if trip.tool not in adapter.tools:
            continue
        if isinstance(adapter, UploadConsumer):
            taking = adapter
        else:
            giving = adapter
    return taking, giving


async def _uploaded(trip: RoundTrip, connection: McpServer) -> str:
    offer = (await connection.call(f"{trip.server.id}{HELPER}", {}))["structuredContent"]
    with tempfile.TemporaryDirectory() as folder:
        file = trip.file
        if file is None:
            file = Path(folder) / "doctor.txt"
            file.write_bytes(CONTENT)
        (uploaded,) = await upload(offer["upload_url"], [file], {}, _silent)
    return str(uploaded["upload_handle"])


async def _fetched(subject: str, result: dict[str, Any], connection: McpServer) -> Finding:
    meta = result.get("_meta", {})
    artifact = meta.get("artifact")
    if artifact is None:
        why = meta.get("artifact_error", "the result has none")
        return wrong(subject, f"no artifact was captured: {why}", "See output_locator in docs/files.md.")
    if "download_url" in artifact:
        await download(artifact["download_url"], {}, lambda *_: io.BytesIO(), _silent)
    else:
        await connection.read(artifact["artifact_uri"])
    return right(
        subject, f"its artifact {artifact['filename']} ({size(artifact['size_bytes'])}) was downloaded"
    )


def _silent(moved: int) -> None:
    """Show no progress of a file that small."""
