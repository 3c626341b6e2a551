"""The parts of the adapter that its console shows and its metrics count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapter.app.base import Base
from adapter.app.files import FileParts
from adapter.app.relay import RelayParts
from adapter.app.tools import ToolParts
from adapter.app.validation import SharedChecks
from adapter.edge.health import Health
from adapter.edge.http.access import Bases, Guard
from adapter.relay.cleanup import Cleanup

if TYPE_CHECKING:
    from adapter.app.access.browser_sign_in import BrowserSignIn
    from adapter.app.access.grants import GrantParts
    from adapter.app.replicas import ReplicaParts
    from adapter.app.tool_plans import Compiled


class Core(Base):
    """Each part is set once, when it is built. ``cleanup`` works through all of them from time to time.

    ``plans`` is None where the settings ask for none, ``replicas`` where no other process uses the state store,
    ``grants`` where no upstream needs the authorization of people, ``sign_in`` where nobody signs in to the console.
    """

    checks: SharedChecks
    plans: Compiled | None
    files: FileParts
    tools: ToolParts
    replicas: ReplicaParts | None
    grants: GrantParts | None
    relay: RelayParts
    guard: Guard
    bases: Bases
    health: Health
    sign_in: BrowserSignIn | None
    cleanup: Cleanup
