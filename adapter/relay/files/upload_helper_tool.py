"""The helper tool ``<server_id>_get_upload_url``: how a client that speaks only MCP learns where to upload."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import orjson

from adapter.relay.files.artifact_resources import Document, iso
from adapter.relay.files.scopes import Scopes
from adapter.relay.files.signed_urls import Credentials
from adapter.relay.stages import Call, Stage
from adapter.rules.access.principals import Scope
from adapter.rules.results.tool_results import tool_result
from adapter.settings.storage import Uploads

WORKFLOW = "doc://upload_workflow.md"


@dataclass(frozen=True, slots=True)
class Offer:
    """The rules for uploads of one server. ``consumers`` are its tools that take files, with their argument."""

    server: str
    route: str
    settings: Uploads
    consumers: tuple[tuple[str, str], ...]

    @property
    def tool_name(self) -> str:
        return f"{self.server}_get_upload_url"


class HelperTool(Stage):
    """The stage that answers calls of the helper tool."""

    def __init__(self, offer: Offer, credentials: Credentials, scopes: Scopes) -> None:
        self._offer = offer
        self._credentials = credentials
        self._scopes = scopes

    async def ask(self, call: Call) -> bytes | None:
        await self._scopes.remember(call.scope)
        query, expires = self._credentials.issue(self._offer.server, call.scope.id)
        url = f"{call.origin.base}{self._offer.route}/{self._offer.server}?{query}"
        shown = self._shown(url, call.scope, expires)
        text = orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()
        return tool_result(call.envelope.id_bytes, text, shown, modern=call.modern)

    def _shown(self, url: str, scope: Scope, expires: float) -> dict[str, Any]:
        offer = self._offer
        tools = ", ".join(f"{tool} ({argument})" for tool, argument in offer.consumers)
        return {
            "server_id": offer.server,
            "tool_name": offer.tool_name,
            "upload_url": url,
            "method": "POST",
            "headers": {"Mcp-Session-Id": scope.id},
            "auth_mode": "signed_upload_credentials",
            "credential_ttl_seconds": int(self._credentials.ttl),
            "field_name": "file",
            "supports_multiple_files": offer.settings.max_files > 1,
            "sha256_required": offer.settings.require_sha256,
            "sha256_field_name": "sha256",
            "sha256_per_file": True,
            "session_id": scope.id,
            "owner": "principal" if scope.session_key is None else "session",
            "expires_at": iso(expires),
            "max_file_bytes": offer.settings.max_file_bytes,
            "example_curl": self._curl(url, ("photo.png",)),
            "example_curl_multiple": self._curl(url, ("first.pdf", "second.pdf")),
            "note": (
                "POST the file to upload_url as multipart/form-data in a part named file, then pass the "
                f"upload_handle of the answer to a tool that takes files: {tools}. The URL is good for one upload."
            ),
            "integrity_note": (
                "Send one sha256 form field for each file, in the order of the files"
                + (": it is required here." if offer.settings.require_sha256 else ", to verify the upload.")
            ),
        }

    def _curl(self, url: str, names: tuple[str, ...]) -> str:
        parts = [f"-F 'file=@{name}'" for name in names]
        if self._offer.settings.require_sha256:
            parts += [f"-F \"sha256=$(sha256sum {name} | cut -d' ' -f1)\"" for name in names]
        return " ".join(["curl -sS -X POST", shlex.quote(url), *parts])


def definition(offer: Offer) -> dict[str, Any]:
    """The helper tool as a client sees it in the list."""
    tools = ", ".join(tool for tool, _ in offer.consumers)
    return {
        "name": offer.tool_name,
        "title": "Get an upload URL",
        "description": (
            f"Gives a URL to upload local files to, for use with {tools}. Upload with an HTTP POST of "
            "multipart/form-data, then pass the upload_handle of the answer as the tool's file argument. "
            f"Files have at most {offer.settings.max_file_bytes} bytes; the URL is good for one upload."
        ),
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {
            "title": "Get an upload URL",
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        },
    }


def workflow(offer: Offer) -> Document:
    """The resource that explains to a model how files reach a tool."""
    tools = "\n".join(f"- `{tool}`, argument `{argument}`" for tool, argument in offer.consumers)
    limits = offer.settings
    digest = "required" if limits.require_sha256 else "optional"
    text = f"""\
# Giving files to the tools of {offer.server}

These tools run on another machine and cannot read local paths:

{tools}

1. Call `{offer.tool_name}`. It answers with `upload_url`, good for one upload and for a short time.
2. POST the files there as multipart/form-data, each in a part named `file`:
   `curl -F 'file=@photo.png' '<upload_url>'`. At most {limits.max_files} files of {limits.max_file_bytes} bytes each.
   A `sha256` field for each file, in the same order, is {digest}.
3. The answer has an `upload_handle` for one file, `upload_handles` for several. Pass the handle, exactly as it
   is, in the tool's argument. The file's content never goes through the conversation.

A handle works in this session only and expires when it is not used. An `artifact://` URI from the result of another
tool can be passed in its place.
"""
    return Document(WORKFLOW, "upload_workflow.md", "How to upload files", text)
