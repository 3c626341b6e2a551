"""nginx in front of replicas, with the configuration that deploy/ ships: only names and ports are other ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.provision import ROOT
from tests.nginx import nginx_argv

SHIPPED = ROOT / "deploy" / "nginx.conf"


def balancer_argv(place: Path, port: int, replicas: Sequence[int]) -> list[str]:
    """Write nginx's files into ``place``; how to start it, so that it listens on ``port`` of 127.0.0.1.

    ``replicas`` are the ports of the replicas. Raises Missing where nginx is not installed.
    """
    (place / "default.conf").write_text(rendered(SHIPPED.read_text(), port, replicas))
    return nginx_argv(place, f"    include {place}/default.conf;", connections=4096)


def rendered(shipped: str, port: int, replicas: Sequence[int]) -> str:
    """The shipped configuration with other ports, and as many servers as there are replicas."""
    servers = re.findall(r"^ *server [\w.-]+:\d+.*;\n", shipped, re.MULTILINE)
    assert servers, "the shipped configuration names its replicas"
    ours = "".join(re.sub(r"server [\w.-]+:\d+", f"server 127.0.0.1:{each}", servers[0]) for each in replicas)
    text = shipped.replace(servers[0], ours)
    for server in servers[1:]:
        text = text.replace(server, "")
    return re.sub(r"listen \d+;", f"listen 127.0.0.1:{port};", text)
