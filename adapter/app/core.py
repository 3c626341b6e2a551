"""The parts of the adapter that its console shows and its metrics count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adapter import log
from adapter.app.base import Base
from adapter.app.files import FileSecrets
from adapter.app.servers import Servers
from adapter.app.sessions import SessionStack
from adapter.app.tools import ToolGuards
from adapter.edge.health import Health
from adapter.edge.http.access import Bases, Guard
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.cleanup import Cleanup
from adapter.relay.exchange import Exchanges
from adapter.relay.server import Server
from adapter.relay.sessions.session_map import Sessions

if TYPE_CHECKING:
    from adapter.app.access.grants import UpstreamGrants
    from adapter.app.access.oauth_callers import BrowserSignIn
    from adapter.app.replicas import ReplicaService
    from adapter.app.tool_plans import Compiled
    from adapter.edge.spans import ServerSpans
    from adapter.files.audit_log import AuditLog
    from adapter.pipeline.tracing import PlanTracer
    from adapter.relay.call.audit_trail import AuditTrail
    from adapter.relay.http_api.recent_exchanges import Recent
    from adapter.relay.http_api.shared_exchanges import SharedExchanges
    from adapter.relay.mounts.merged import MergedMount
    from adapter.telemetry import Telemetry


class Core(Base):
    """Each part is set once, when it is built. ``cleanup`` works through all of them from time to time.

    What has a default is None where the settings do not ask for it: ``replicas`` where no other process uses the state
    store, ``grants`` where no upstream needs the authorization of people, ``sign_in``
    where nobody signs in to the console. Exchanges are recorded by ``calls`` (the access log), ``recent``
    (those that the console shows), ``shared_exchanges`` (those of other processes) and ``trail``, which writes to
    ``audit``.
    """

    telemetry: Telemetry | None = None
    calls: log.CallLog | None = None
    recent: Recent | None = None
    shared_exchanges: SharedExchanges | None = None
    audit: AuditLog | None = None
    trail: AuditTrail | None = None

    plans: Compiled | None = None
    session_parts: SessionStack
    files: FileSecrets
    tools: ToolGuards
    replicas: ReplicaService | None = None
    grants: UpstreamGrants | None = None
    server_parts: Servers
    deferred: DeferredAnswers
    relay: Exchanges
    merged: Sequence[MergedMount] = ()

    guard: Guard
    bases: Bases
    health: Health
    sign_in: BrowserSignIn | None = None
    cleanup: Cleanup

    @property
    def sessions(self) -> Sessions:
        """The sessions of clients."""
        return self.session_parts.sessions

    @property
    def servers(self) -> Mapping[str, Server]:
        """The servers by id."""
        return self.server_parts.by_id

    @property
    def tracing(self) -> PlanTracer | None:
        """The spans of calls."""
        return None if self.telemetry is None else self.telemetry.tracing

    def server_spans(self) -> ServerSpans | None:
        """Build the spans of what clients ask; None where none are recorded."""
        if self.telemetry is None:
            return None
        from adapter.edge.spans import ServerSpans

        return ServerSpans(self.telemetry.requests)
