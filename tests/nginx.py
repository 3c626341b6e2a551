"""nginx as tests and benchmarks start it: one worker, no log of requests, all its files in one directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.missing import Missing

_CONFIG = """\
{user}
worker_processes 1;
daemon off;
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
{http}
}}
"""


def nginx_program() -> str:
    """The path of nginx, which Debian keeps off the PATH of most users. Raises Missing."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise Missing("nginx is not installed (Debian's package is called nginx)")
    return program


def nginx_argv(place: Path, http: str, *, connections: int) -> list[str]:
    """Write nginx's configuration into ``place``, with ``http`` as the rest of its block; how to start it.

    Raises Missing.
    """
    program = nginx_program()
    # Started by root, its worker would become a user who may not write below `place`.
    user = "user root;" if os.geteuid() == 0 else ""
    config = place / "nginx.conf"
    config.write_text(_CONFIG.format(user=user, place=place, connections=connections, http=http))
    return [program, "-c", str(config), "-p", str(place), "-e", str(place / "error.log")]
