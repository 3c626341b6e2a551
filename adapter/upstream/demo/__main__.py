"""Serves the demo on loopback and prints its URL as one line, once it can be called."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from pathlib import Path

import uvicorn

from adapter.upstream.demo.server import demo_server

HOST = "127.0.0.1"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m adapter.upstream.demo", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument(
        "--folder", type=Path, required=True, help="the folder to serve; created when missing"
    )
    parser.add_argument(
        "--shared",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a directory of somebody else whose files may be read and written too; may be repeated",
    )
    parser.add_argument("--until-stdin-ends", action="store_true", help="stop when standard input is closed")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    app = demo_server(options.folder, options.shared).streamable_http_app(host=HOST)
    server = uvicorn.Server(
        # A waiting stream must not hold up the stop: this process ends with whoever started it.
        uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    )
    try:
        asyncio.run(_serve(server, options.port, until_stdin_ends=options.until_stdin_ends))
    except OSError as error:
        sys.stderr.write(f"The demo cannot listen on {HOST}:{options.port}: {error.strerror}.\n")
        return 2
    except KeyboardInterrupt:
        # uvicorn has stopped in order and then raises the signal it caught once more.
        pass
    return 0


async def _serve(server: uvicorn.Server, port: int, *, until_stdin_ends: bool) -> None:
    # Bound here, not by uvicorn: the port is known and accepts connections before the URL is printed.
    with socket.create_server((HOST, port), backlog=128) as listening:
        sys.stdout.write(f"http://{HOST}:{listening.getsockname()[1]}/mcp\n")
        sys.stdout.flush()
        parent = asyncio.create_task(_stop_at_end_of_stdin(server)) if until_stdin_ends else None
        await server.serve(sockets=[listening])
        if parent is not None:
            parent.cancel()


async def _stop_at_end_of_stdin(server: uvicorn.Server) -> None:
    """Stop the server at the end of standard input: a pipe ends with its writer, also when that is killed."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while await reader.read(4096):
        pass
    server.should_exit = True


if __name__ == "__main__":
    sys.exit(main())
