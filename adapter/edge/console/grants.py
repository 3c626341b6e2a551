"""The grants that people have given, for the console: one's own, and for operators everybody's; and their end."""

from __future__ import annotations

from collections.abc import Mapping

from adapter.edge.console.status import Viewer, Viewers, require_json
from adapter.edge.http.request import Branch, Names, Request
from adapter.edge.http.response import send
from adapter.errors import NotFound
from adapter.oauth.grants.credentials import GrantCredentials
from adapter.oauth.grants.grant_store import ListedGrant
from adapter.rules.calls.tool_api import HttpOutcome
from adapter.wire.envelope import dump

MOST = 1000
"""Grants that are shown."""


class ConsoleGrants:
    """Tells of grants, and serves the route that revokes one."""

    def __init__(self, path: str, viewers: Viewers, servers: Mapping[str, GrantCredentials]) -> None:
        self._data = f"{path.rstrip('/')}/-"
        self._viewers = viewers
        self._servers = servers

    def branch(self) -> Branch:
        """The route."""
        return Branch(f"{self._data}/grants", 3, ("POST",), (), self._revoke)

    async def told(self, viewer: Viewer) -> list[dict[str, object]]:
        """The grants that a viewer may see. Raises StoreUnavailable."""
        found = [each for name, grants in self._servers.items() async for each in grants.grants.all(name)]
        return [each.as_data() for each in found if _may_see(viewer, each)][:MOST]

    async def _revoke(self, request: Request, names: Names, extra: list[tuple[str, str]]) -> None:
        server, grant_id, verb = names
        viewer = self._viewers.of(request.headers)
        require_json(request)
        grants = self._servers.get(server)
        listed = None if grants is None else await grants.grants.listed(server, grant_id)
        if grants is None or listed is None or verb != "revoke" or not _may_see(viewer, listed):
            raise NotFound("There is no such grant.")
        revoked = await grants.revoke(listed)
        send(request, HttpOutcome(200, dump({"revoked": revoked})), extra)


def _may_see(viewer: Viewer, listed: ListedGrant) -> bool:
    if viewer.operator:
        return True
    return listed.grant is not None and listed.grant.principal == viewer.principal
