"""What moving files costs at the least: nginx that stores and sends them, Python that copies them.

``python -m tests.bench.limits copy|copy-hash SOURCE TARGET`` does one of them in this process and prints a JSON object
of what it took.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from tests.bench.fronts import START_TIMEOUT, FrontUnavailable, Running, end, free_port, nginx_front_argv
from tests.bench.load import Address

PIECE = 1024 * 1024

CONFIG = """\
    client_max_body_size 0;
    server {{
        listen 127.0.0.1:{port};
        location = /store {{
            client_body_in_file_only clean;
            client_body_buffer_size 1m;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
            proxy_pass http://127.0.0.1:{port}/stored;
        }}
        location = /stored {{ return 204; }}
        location /files/ {{ alias {files}/; sendfile on; tcp_nopush on; }}
    }}
"""


@asynccontextmanager
async def nginx_with_files(place: Path, files: Path) -> AsyncIterator[Running]:
    """One worker that writes the body of a POST to ``/store`` to a file, which is gone with the answer, and sends
    ``/files/NAME`` by sendfile. Nothing is hashed, nothing synced."""
    port = free_port()
    argv = nginx_front_argv(place, CONFIG.format(files=files, port=port), connections=512)
    with (place / "output.log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        await _until_it_listens(process, port)
        yield Running(Address(port, "/store"), process.pid)
    finally:
        end(process)


async def _until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            await asyncio.sleep(0.05)  # there is no event to wait for: another process opens its port
        else:
            return
    raise FrontUnavailable("nginx, as a store of files, does not listen.")


def copy(source: Path, target: Path, *, digest: bool) -> None:
    """Read, write and sync in pieces of a mebibyte, with one buffer; with ``digest`` SHA-256 on the way."""
    found = hashlib.sha256()
    buffer = memoryview(bytearray(PIECE))
    with source.open("rb", buffering=0) as reading, target.open("wb", buffering=0) as writing:
        while count := reading.readinto(buffer):
            if digest:
                found.update(buffer[:count])
            writing.write(buffer[:count])
        os.fsync(writing.fileno())


def main() -> None:
    match sys.argv[1:]:
        case ["copy" | "copy-hash" as kind, source, target]:
            begun, wall = time.process_time(), time.perf_counter()
            copy(Path(source), Path(target), digest=kind == "copy-hash")
            done = {"cpu": time.process_time() - begun, "wall": time.perf_counter() - wall}
        case _:
            raise SystemExit(__doc__)
    sys.stdout.buffer.write(orjson.dumps(done))


if __name__ == "__main__":
    main()
