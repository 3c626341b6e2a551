"""nginx in front of replicas, with the configuration that deploy/ ships: only names and ports are other ones."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.provision import ROOT, Missing

SHIPPED = ROOT / "deploy" / "nginx.conf"

AROUND = """\
{user}
worker_processes 1;
daemon off;
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    include {place}/default.conf;
}}
"""
"""As much as the image of nginx has around a file of conf.d."""


def nginx() -> str:
    """The path of nginx, which Debian keeps off the PATH of most users. Raises Missing."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise Missing("nginx is not installed (Debian's package is called nginx)")
    return program


def balancer_argv(place: Path, port: int, replicas: Sequence[int]) -> list[str]:
    """Write nginx's files into ``place``; how to start it, so that it listens on ``port`` of 127.0.0.1.

    ``replicas`` are the ports of the replicas. Raises Missing where nginx is not installed.
    """
    program = nginx()
    (place / "default.conf").write_text(rendered(SHIPPED.read_text(), port, replicas))
    # Started by root, its worker would become a user who may not write below `place`.
    user = "user root;" if os.geteuid() == 0 else ""
    config = place / "nginx.conf"
    config.write_text(AROUND.format(user=user, place=place))
    return [program, "-c", str(config), "-p", str(place), "-e", str(place / "error.log")]


def rendered(shipped: str, port: int, replicas: Sequence[int]) -> str:
    """The shipped configuration with other ports, and as many servers as there are replicas."""
    servers = re.findall(r"^ *server [\w.-]+:\d+.*;\n", shipped, re.MULTILINE)
    assert servers, "the shipped configuration names its replicas"
    ours = "".join(re.sub(r"server [\w.-]+:\d+", f"server 127.0.0.1:{each}", servers[0]) for each in replicas)
    text = shipped.replace(servers[0], ours)
    for server in servers[1:]:
        text = text.replace(server, "")
    return re.sub(r"listen \d+;", f"listen 127.0.0.1:{port};", text)
