"""The health check of the adapter in the compose files. It ends a process that stands still; the container restarts.

Docker only marks a container as unhealthy. This one needs ``init: true``: nothing in a container can kill process 1.
It fails where ``/livez`` is not 200, and kills only where there is no answer in SILENCE seconds: one that starts or
stops refuses connections.
"""

import contextlib
import http.client
import os
import signal
import sys
from pathlib import Path

SILENCE = 10.0


def main() -> int:
    """Return the exit status of the health check."""
    port = int(os.environ.get("ADAPTER_CORE__PORT", "8932"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SILENCE)
    try:
        connection.request("GET", "/livez")
        return int(connection.getresponse().status != 200)
    except TimeoutError:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has gone meanwhile
                if b"/mcp-adapter\0serve\0" in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
    except OSError:
        pass
    return 1


if __name__ == "__main__":
    sys.exit(main())
