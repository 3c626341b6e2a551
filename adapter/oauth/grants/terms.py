"""The settings of one server whose callers give grants, and what is known of its authorization server."""

from __future__ import annotations

from typing import NamedTuple

from adapter.rules.access.authorization_servers import ServerEndpoints
from adapter.settings.servers.upstream_auth import UpstreamAuth


class GrantTerms(NamedTuple):
    """``server`` is its id, ``url`` that of the upstream; what ``auth`` leaves out is as the upstream's metadata says.

    ``base`` is the public URL of the adapter, without a slash at its end.
    """

    server: str
    url: str
    base: str
    auth: UpstreamAuth

    def __repr__(self) -> str:
        return f"<GrantTerms of {self.server!r}>"

    @property
    def is_discovered(self) -> bool:
        """True where the upstream itself names the authorization server."""
        auth = self.auth
        return auth.issuer is None and (auth.authorization_endpoint is None or auth.token_endpoint is None)

    @property
    def knows_issuer(self) -> bool:
        """True where the issuer of an answer can be compared: settings may name endpoints only."""
        return self.auth.issuer is not None or self.is_discovered

    @property
    def place(self) -> str:
        """The URL below which a browser finds the pages of this server's grants."""
        return f"{self.base}{PREFIX}/{self.server}"

    @property
    def redirect(self) -> str:
        """The one redirect URI: of this server alone, so that no other server's answer is taken for its own."""
        return f"{self.place}/callback"

    @property
    def document(self) -> str:
        """The URL of the adapter's client id metadata document for this server."""
        return f"{self.place}/client.json"


PREFIX = "/authorize"
"""The path of all pages of grants."""


class GrantSource(NamedTuple):
    """The authorization server, resource and scopes of a grant; ``resource`` is empty where none is to be named."""

    endpoints: ServerEndpoints
    resource: str
    scopes: tuple[str, ...]
