"""The adapter as a protected resource of an authorization server, as one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.commands.client.speaking import browser
from tests.e2e.filing import ADAPTERS
from tests.e2e.oauth.authorization_server import AuthorizationServer
from tests.e2e.processes import Adapter
from tests.e2e.provision import ROOT
from tests.e2e.replicas import Serving, replicated
from tests.ports import free_port


def core_of(base: str, issuer: AuthorizationServer, **oauth: Any) -> dict[str, Any]:
    """``core`` of an adapter at ``base`` that takes tokens of ``issuer``; ``oauth`` are more of its settings."""
    entry = {"issuer": issuer.issuer, "required_scopes": ["mcp"]}
    return {
        "public_base_url": base,
        "allow_artifacts_download": True,
        "auth": {"oauth": {"issuers": [entry], **oauth}},
    }


def browser_of(place: Path, person: str) -> str:
    """The value of ``BROWSER`` for one in which ``person`` signs in; each time adds a letter to the file ``opened``."""
    code = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.e2e.clients.browser import Browser\n"
    return browser(
        place, code + f"open({str(place / 'opened')!r}, 'a').write('x')\nBrowser({person!r}).visit(url)\n"
    )


REPLICAS = 3


@asynccontextmanager
async def protected_adapter(
    place: Path,
    upstream: str,
    issuer: AuthorizationServer | None,
    *,
    oauth: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    port: int | None = None,
    **sections: Any,
) -> AsyncIterator[Adapter]:
    """The adapter in front of ``upstream``, for people who sign in at ``issuer``; None: for everybody.

    ``oauth`` are more settings of ``core.auth.oauth``, ``server`` of the server; ``sections`` join the file. ``port``
    is for whoever has to know it before.
    """
    entry = {"id": "upstream", "mount_path": "/mcp", "upstream": {"url": upstream}, **(server or {})}
    settings: dict[str, Any] = {
        "storage": {"root": str(place / "data")},
        "servers": [{"adapters": list(ADAPTERS), **entry}],
        # Where nobody signs in all callers are one principal.
        "sessions": {} if issuer is None else {"scope": "principal"},
        **sections,
    }
    front = Adapter(place, settings, port or free_port())
    core = {"public_base_url": front.base} if issuer is None else core_of(front.base, issuer, **(oauth or {}))
    settings["core"] = {**core, **sections.get("core", {})}
    async with front:
        yield front


@asynccontextmanager
async def three_replicas(
    place: Path, issuer: AuthorizationServer, upstream: str, *, port: int | None = None, **sections: Any
) -> AsyncIterator[Serving]:
    """The adapter for people who sign in at ``issuer``; any request may reach any replica. ``port`` is nginx's."""
    port = port or free_port()
    core = {
        **core_of(f"http://127.0.0.1:{port}", issuer),
        "trusted_proxies": ["127.0.0.1"],
        "secret": "secret-of-all-replicas" * 2,
    }
    async with replicated(
        place,
        upstream,
        REPLICAS,
        adapters=ADAPTERS,
        port=port,
        core=core,
        sessions={"scope": "principal"},
        **sections,
    ) as front:
        yield front
