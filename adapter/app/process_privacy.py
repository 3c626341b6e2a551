"""The adapter's own memory and environment, kept from the programs that it runs for its tools."""

from __future__ import annotations

import ctypes
import sys

from structlog.typing import FilteringBoundLogger

from adapter.settings.root import Settings

_PR_SET_DUMPABLE = 4
"""linux/prctl.h."""


def hide_from_programs(settings: Settings, logger: FilteringBoundLogger) -> None:
    """Make ``/proc/PID/environ`` and ``/proc/PID/mem`` of this process unreadable for others of its user.

    Programs (``runtime: subprocess``) run as that user, and both hold every secret. There are no core dumps and no
    debugger of the same user from then on, so this is for configurations with such programs only. It keeps nothing
    from root. Where the system has no such switch, a warning says so.
    """
    tools = (tool for server in settings.servers for tool in server.tools.define)
    if not any(tool.runtime == "subprocess" for tool in tools):
        return
    if sys.platform != "linux" or ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        logger.warning("programs of tools may read the adapter's memory and environment on this system")
