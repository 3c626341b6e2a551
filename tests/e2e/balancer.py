"""nginx and HAProxy in front of replicas, as deploy/ configures them: only names and ports are other ones."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.provision import ROOT
from tests.missing import Missing
from tests.nginx import nginx_argv

SHIPPED = ROOT / "deploy" / "nginx.conf"
SHIPPED_HAPROXY = ROOT / "deploy" / "haproxy.cfg"


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


def haproxy_argv(place: Path, port: int, replicas: Sequence[int]) -> list[str]:
    """The same for HAProxy and three replicas. Raises Missing."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if program is None:
        raise Missing("haproxy is not installed")
    text = SHIPPED_HAPROXY.read_text().replace("bind :8932", f"bind 127.0.0.1:{port}")
    for number, each in enumerate(replicas, 1):
        text = text.replace(f"adapter-{number}:8932", f"127.0.0.1:{each}")
    assert ":8932" not in text
    (place / "haproxy.cfg").write_text(text)
    return [program, "-db", "-f", str(place / "haproxy.cfg")]
