"""The helper tool ``<server_id>_get_upload_url``: how a client that speaks only MCP learns where to upload."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import orjson

from adapter.relay.files.artifact_resources import Document, iso
from adapter.relay.files.upload_offers import IssuedOffer, UploadOffers
from adapter.relay.stages import Call, Stage
from adapter.rules.access.principals import Scope
from adapter.rules.results.tool_results import tool_result
from adapter.rules.tools.definitions import own_tool
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

    @property
    def status_tool_name(self) -> str:
        return f"{self.server}_upload_status"


@dataclass(eq=False, repr=False)
class HelperTool(Stage):
    """The stage that answers calls of the helper tool."""

    offer: Offer
    offers: UploadOffers

    async def ask(self, call: Call) -> bytes | None:
        issued = await self.offers.issue(self.offer.server, call.origin.caller.principal, call.scope)
        shown = self._shown(f"{call.origin.base}{self.offer.route}/{self.offer.server}", call.scope, issued)
        text = orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()
        return tool_result(call.envelope.id_bytes, text, shown, modern=call.modern)

    def _shown(self, route: str, scope: Scope, issued: IssuedOffer) -> dict[str, Any]:
        offer, links = self.offer, issued.links
        url, page = f"{route}?{links.query}", f"{route}?{links.page_query}"
        ttl = int(self.offers.credentials.ttl)
        tools = ", ".join(f"{tool} ({argument})" for tool, argument in offer.consumers)
        return {
            "server_id": offer.server,
            "tool_name": offer.tool_name,
            "upload_url": url,
            "method": "POST",
            "headers": {"Mcp-Session-Id": scope.id},
            "auth_mode": "signed_upload_credentials",
            "credential_ttl_seconds": ttl,
            "field_name": "file",
            "max_files": offer.settings.max_files,
            "supports_multiple_files": offer.settings.max_files > 1,
            "sha256_required": offer.settings.require_sha256,
            "sha256_field_name": "sha256",
            "sha256_per_file": True,
            "session_id": scope.id,
            "owner": "principal" if scope.session_key is None else "session",
            "expires_at": iso(links.expires),
            "max_file_bytes": offer.settings.max_file_bytes,
            "example_curl": self._curl(url, ("photo.png",)),
            "example_curl_multiple": self._curl(url, ("first.pdf", "second.pdf")),
            "note": (
                "POST the file to upload_url as multipart/form-data in a part named file, then pass the "
                f"upload_handle of the answer to a tool that takes files: {tools}. The URL is good for one upload. "
                "If you cannot run commands, or the upload fails, give the person message_for_person: its link is for "
                f"the same upload. Then call {offer.status_tool_name} with upload_id, which tells the handles. Never "
                "guess what is in a file that you were not given."
            ),
            "integrity_note": (
                "Send one sha256 form field for each file, in the order of the files"
                + (": it is required here." if offer.settings.require_sha256 else ", to verify the upload.")
            ),
            "upload_id": issued.upload_id,
            "open_in_browser": page,
            "page_expires_at": iso(links.page_expires),
            "message_for_person": (
                f"Please open this link within {_spoken(self.offers.credentials.page_ttl)} and choose "
                f"{'your files' if offer.settings.max_files > 1 else 'your file'} there: {page}"
            ),
            "upload": transfer(url, links.expires),
        }

    def _curl(self, url: str, names: tuple[str, ...]) -> str:
        parts = [f"-F 'file=@{name}'" for name in names]
        if self.offer.settings.require_sha256:
            parts += [f"-F \"sha256=$(sha256sum {name} | cut -d' ' -f1)\"" for name in names]
        return " ".join(["curl -sS -X POST", shlex.quote(url), *parts])


def transfer(url: str, expires: float) -> dict[str, Any]:
    """The way of the bytes in the shape of ``FileTransferDescriptor`` of SEP-2631, and nothing else of that proposal.

    It is a draft: github.com/modelcontextprotocol/modelcontextprotocol, pull request 2631, "Upload Negotiation", as it
    stood in November 2026.
    """
    return {
        "transport": "https",
        "method": "POST",
        "url": url,
        "headers": {},
        "multipart": {"fileField": "file", "fields": {}},
        "expiresAt": iso(expires),
    }


def _spoken(seconds: float) -> str:
    """A time as people say it, rounded down."""
    number, unit = (int(seconds // 60), "minute") if seconds >= 60 else (int(seconds), "second")
    return f"{number} {unit}{'' if number == 1 else 's'}"


def definition(offer: Offer) -> dict[str, Any]:
    """The helper tool as a client sees it in the list."""
    tools = ", ".join(tool for tool, _ in offer.consumers)
    return own_tool(
        offer.tool_name,
        "Get an upload URL",
        (
            f"Gives two links for uploading files, for use with {tools}. If you can run commands, send the files to "
            "upload_url with an HTTP POST of multipart/form-data. If you cannot, or that fails, give the person the "
            "link open_in_browser, where they choose the files, and call "
            f"{offer.status_tool_name}. Then pass the upload_handle of a file as the tool's file argument; never guess "
            "what is in a file. "
            f"Files have at most {offer.settings.max_file_bytes} bytes; both links are for one and the same upload."
        ),
        {},
    )


def workflow(offer: Offer) -> Document:
    """The resource that explains to a model how files reach a tool."""
    tools = "\n".join(f"- `{tool}`, argument `{argument}`" for tool, argument in offer.consumers)
    limits = offer.settings
    digest = "required" if limits.require_sha256 else "optional"
    text = f"""\
# Giving files to the tools of {offer.server}

These tools run on another machine and cannot read local paths:

{tools}

1. Call `{offer.tool_name}`. It answers with two links for one upload: `upload_url` for programs, good for a short
   time, and `open_in_browser` for a person, good until `page_expires_at`. Whichever is used first ends the other.
2. If you can run commands, POST the files to `upload_url` as multipart/form-data, each in a part named `file`:
   `curl -F 'file=@photo.png' '<upload_url>'`. At most {limits.max_files} files of {limits.max_file_bytes} bytes each.
   A `sha256` field for each file, in the same order, is {digest}.
   If you cannot run commands, or it failed, show the person `message_for_person`.
3. The answer to the POST has an `upload_handle` for one file, `upload_handles` for several. If a person uploads, call
   `{offer.status_tool_name}` with the `upload_id` and `wait_seconds: 50`, again and again until its `state` is `done`;
   it has the same handles. Pass a handle, exactly as it is, in the tool's argument. The file's content never goes
   through the conversation.

Until then you do not know what is in the file. Never guess it, and never do the work of the tool by yourself: say
that the file has not come.

A handle expires when it is not used. One from `{offer.status_tool_name}` or from the page is good in every session of
yours on this server. An `artifact://` URI from the result of another tool can be passed in its place.
"""
    return Document(WORKFLOW, "upload_workflow.md", "How to upload files", text)
