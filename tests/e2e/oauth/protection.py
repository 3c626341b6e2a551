"""A protected upstream, and clients that sign people in: processes that tests of OAuth share."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from mcp.shared.exceptions import MCPError

from tests.e2e import talk
from tests.e2e.clients.sign_in import provider
from tests.e2e.filing import PythonHost, python_host, texts
from tests.e2e.oauth.authorization_server import AuthorizationServer
from tests.e2e.processes import START_TIMEOUT, Adapter, start
from tests.e2e.provision import HERE, packages
from tests.e2e.replicas import Serving
from tests.e2e.talk import Talk
from tests.ports import free_port

SIGN_IN_TIMEOUT = 20.0
"""Seconds a client may take to sign a person in."""

Command = Callable[[str], list[str | Path]]
"""The command line of a client by its name, without its URL and headers."""


def commands(node: Path, mcp1: Path, fastmcp4: Path) -> Command:
    """The command lines of the official clients, with the programs that run them."""
    pythons = {"python_v1": mcp1, "python_v2": Path(sys.executable), "fastmcp4": fastmcp4}

    def line(name: str) -> list[str | Path]:
        script = name.split()[0]
        if script.startswith("ts_"):
            return [node, HERE / "clients" / f"{script}.mjs"]
        return [pythons[script], "-m", f"tests.e2e.clients.{script}"]

    return line


@asynccontextmanager
async def signed_in(command: Command, name: str, person: str, url: str, place: Path) -> AsyncIterator[Talk]:
    """The client called ``name``, which has signed ``person`` in at ``url`` and is connected."""
    conversation = talk.opened(
        name,
        command(name),
        place / f"{name} {person}.log",
        url=url,
        mode=name.split()[1:],
        environment={"NODE_PACKAGES": str(packages()), "SIGN_IN_AS": person},
    )
    async with conversation as client:
        connected = await client.answer(SIGN_IN_TIMEOUT)
        assert connected["ok"], (name, connected)
        yield client


@asynccontextmanager
async def protected_server(
    python: Path,
    place: Path,
    issuer: AuthorizationServer,
    audience: str | None = "own",
    public: str | None = None,
) -> AsyncIterator[str]:
    """FastMCP that takes tokens of ``issuer``, for ``audience``: ``own`` is its URL, None is every one. Its URL.

    ``public`` is the address above ``/mcp`` that it was told to be reached at.
    """
    port = free_port()
    taken = {"own": f"http://127.0.0.1:{port}/mcp", None: "-"}.get(audience, audience)
    module = "tests.e2e.oauth.protected_server"
    argv: list[str | Path] = [python, "-m", module, str(port), issuer.issuer, str(taken)]
    argv.append(public or f"http://127.0.0.1:{port}")
    running = await start(argv, place / "protected_server.log")
    try:
        yield await running.line(START_TIMEOUT)
    finally:
        await running.stop()


def person(name: str, front: Adapter | Serving, mode: str) -> AbstractAsyncContextManager[PythonHost]:
    """The SDK's client, in which somebody has signed in."""
    return python_host(front.url, mode, auth=provider(front.url, result=True, person=name))


async def link_of(host: PythonHost, tool: str = "whoami", **arguments: str) -> str:
    """The link in the answer to a call without a grant."""
    try:
        words = texts(await host.call(tool, **arguments))
    except MCPError as error:
        words = str(error.error)
    found = re.search(r"https?://127\.0\.0\.1:\d+/authorize/[\w/-]+", words)
    assert found is not None, words
    return found[0]
