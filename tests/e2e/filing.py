"""What end-to-end tests of files share: hosts that a person would use, and curl, which they are told to upload with."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.talk import Talk

Json = dict[str, Any]

MIB = 1024 * 1024

HELPER = "upstream_get_upload_url"
"""The tool that hands out upload URLs."""

READER = "upstream_read_artifact"
"""The tool that reads artifacts."""

ADAPTERS: tuple[Json, ...] = (
    {"type": "upload_consumer", "tools": ["digest"], "file_path_argument": "path"},
    {"type": "upload_consumer", "tools": ["digests"], "file_path_argument": "paths"},
    {
        "type": "upload_consumer",
        "tools": ["digest_inline"],
        "file_path_argument": "data",
        "delivery": "base64",
    },
    {"type": "artifact_producer", "tools": ["draw", "turn_round"], "output_path_argument": "filename"},
    {"type": "upload_consumer", "tools": ["turn_round"], "file_path_argument": "path"},
)
"""The tools of ``tests.e2e.files_server``."""

TRANSFER_TIMEOUT = 30
"""Seconds one upload or download may take."""

CALL_TIMEOUT = 30.0
"""Seconds one call may take: a browser may have to be started for it."""


class Host(Protocol):
    """A connected client; results are as they stand in JSON."""

    async def tools(self) -> list[str]: ...

    async def call(self, tool: str, **arguments: Any) -> Json: ...

    async def resources(self) -> list[Json]: ...

    async def read(self, uri: str) -> Json:
        """The one content of the resource. Raises Unreadable."""


class Unreadable(Exception):
    """A resource is not to be had; the text is what the client was told."""


@dataclass(frozen=True)
class PythonHost:
    """A Host over the Python SDK 2.x."""

    client: Client

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, tool: str, **arguments: Any) -> Json:
        result = await self.client.call_tool(tool, arguments, CALL_TIMEOUT)
        return _json(result)

    async def resources(self) -> list[Json]:
        listed: list[Json] = _json(await self.client.list_resources())["resources"]
        return listed

    async def read(self, uri: str) -> Json:
        try:
            (content,) = _json(await self.client.read_resource(uri))["contents"]
        except Exception as error:
            raise Unreadable(str(error)) from error
        return dict(content)


@dataclass(frozen=True)
class ScriptedHost:
    """A Host over the conversation with a client script that knows the steps ``result``, ``resources``, ``read``."""

    talk: Talk

    async def tools(self) -> list[str]:
        told = await self.talk.ask("list", timeout=CALL_TIMEOUT)
        assert told["ok"], told
        return str(told["text"]).split()

    async def call(self, tool: str, **arguments: Any) -> Json:
        return await self._told("result", tool=tool, arguments=arguments)

    async def resources(self) -> list[Json]:
        listed: list[Json] = (await self._told("resources"))["resources"]
        return listed

    async def read(self, uri: str) -> Json:
        (content,) = (await self._told("read", uri=uri))["contents"]
        return dict(content)

    async def _told(self, step: str, **more: Any) -> Json:
        told = await self.talk.ask(step, timeout=CALL_TIMEOUT, **more)
        if not told["ok"]:
            raise Unreadable(told["text"])
        result: Json = json.loads(told["text"])
        return result


@asynccontextmanager
async def python_host(
    url: str, mode: str = "legacy", headers: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None
) -> AsyncIterator[PythonHost]:
    """The Python SDK, connected to ``url`` in ``mode``: legacy, auto or the date of a modern revision."""
    # Node closes a connection that was idle for five seconds, which is when httpx would use it for the last time.
    limits = httpx2.Limits(keepalive_expiry=2)
    async with (
        httpx2.AsyncClient(
            headers=dict(headers or {}), timeout=CALL_TIMEOUT, auth=auth, limits=limits
        ) as http,
        # What is listed is asked for anew each time: a test compares what the adapter says now.
        Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as client,
    ):
        yield PythonHost(client)


def _json(result: Any) -> Json:
    dumped: Json = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


# --- what results say ---------------------------------------------------------------------------------------------


def said(result: Json) -> str:
    """All text blocks of a result that is no error."""
    assert not result.get("isError"), result
    return texts(result)


def texts(result: Json) -> str:
    """All text blocks of a result, also of one that is an error."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


def artifact(result: Json) -> Json:
    """What ``_meta.artifact`` tells of the file that a call produced."""
    assert not result.get("isError"), result
    assert "artifact" in result.get("_meta", {}), result
    told: Json = result["_meta"]["artifact"]
    return told


def content_of(resource: Json) -> bytes:
    """The bytes of a resource that was read."""
    if "blob" in resource:
        return base64.b64decode(resource["blob"], validate=True)
    return str(resource["text"]).encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# --- over HTTP ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What curl was answered."""

    status: int
    body: bytes

    @property
    def json(self) -> Json:
        parsed: Json = json.loads(self.body)
        return parsed


async def curl(*arguments: str | Path) -> Answer:
    """Runs curl, which must get an answer, whatever it is."""
    command = ["curl", "-sS", "--max-time", str(TRANSFER_TIMEOUT), "-w", "\n%{http_code}", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    printed, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    body, _, status = printed.rpartition(b"\n")
    return Answer(int(status), body)


async def offered(host: Host, helper: str = HELPER) -> str:
    """A fresh upload URL, from the helper tool."""
    told: Json = (await host.call(helper))["structuredContent"]
    return str(told["upload_url"])


async def post(url: str, *files: Path) -> Answer:
    """Posts the files as one batch, each with its digest."""
    digests = [("-F", f"sha256={sha256(file.read_bytes())}") for file in files]
    parts = [("-F", f"file=@{file}") for file in files]
    return await curl(*(argument for pair in (*parts, *digests) for argument in pair), url)


async def uploaded(host: Host, *files: Path, helper: str = HELPER) -> list[Json]:
    """Uploads the files as the helper tool says; what the adapter holds of each."""
    answer = await post(await offered(host, helper), *files)
    assert answer.status == 200, answer
    uploads: list[Json] = answer.json["uploads"]
    assert [upload["sha256"] for upload in uploads] == [sha256(file.read_bytes()) for file in files]
    assert [upload["filename"] for upload in uploads] == [file.name for file in files]
    return uploads
