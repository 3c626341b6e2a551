"""The process of ``mcp-adapter connect``: its pipes, from the first line of its host to the last."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import queue
import re
import shlex
import signal
import threading
from collections.abc import AsyncIterator, Callable

from adapter.commands.client.session import headers_of, sign_in_at
from adapter.commands.client.terminal import Terminal, read_input
from adapter.commands.command_parser import failed
from adapter.commands.connect.files import LocalUploads, ResultFolder
from adapter.commands.connect.folders import Folders
from adapter.commands.connect.relay import StdioRelay
from adapter.extras import own_command
from adapter.rules.tools.call_arguments import WrongArgument
from adapter.upstream.http import HttpUpstream
from adapter.upstream.remote import RemoteServer
from adapter.wire.line_messages import Line, LineReader

LONGEST_LINE = 256 << 20
"""Bytes of a message of the host."""


def own_pipes() -> tuple[int, int]:
    """Take standard input and output for this process alone, and return their new numbers.

    Whatever else writes to standard output from now on, such as a browser that is started, writes to standard error.
    """
    pipes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return pipes


async def lines_of_host(number: int) -> AsyncIterator[Line]:
    """What the host writes, line by line, to the end of its pipe."""
    reader = LineReader(LONGEST_LINE)
    while piece := await read_input(number):
        for line in reader.feed(piece):
            yield line
    for line in reader.end():
        yield line


class HostOutput:
    """Writes lines to the host, one after the other. ``on_gone`` is called when the host reads no more.

    A host that reads slowly slows down those who write. It cannot keep the process from ending: the thread that
    waits for it ends with that.
    """

    def __init__(self, number: int, on_gone: Callable[[], None]) -> None:
        self._number, self._on_gone = number, on_gone
        self._lines: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    async def write(self, message: bytes) -> None:
        """Write one message, which has no line end, and wait until it is written."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.put((message + b"\n", written))
        await written

    def _run(self) -> None:
        gone = False
        while True:
            data, written = self._lines.get()
            try:
                _write_all(self._number, b"" if gone else data)
            except OSError:
                gone = True
            # Nobody waits any more where the loop has ended.
            with contextlib.suppress(RuntimeError):
                written.get_loop().call_soon_threadsafe(self._settle, written, gone)

    def _settle(self, written: asyncio.Future[None], gone: bool) -> None:
        if gone:
            self._on_gone()
        if not written.done():
            written.set_result(None)


def _write_all(number: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(number, left) :]


# --- the command -------------------------------------------------------------------------------------------


ANSWERS_PATIENCE = 10.0
"""Seconds for which answers are waited for when the host writes no more."""

_MOST_CONNECTIONS = 1024
_CONNECT_PATIENCE = 10.0
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class HostTerminal(Terminal):
    """The log of a host, which may lend its servers no screen, and end them before its person has signed in."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    async def sign_in(self, url: str) -> None:
        """Show where to sign in, and how to do so before the host asks."""
        await super().sign_in(url)
        command = shlex.join([*own_command(), "tools", self._url])
        self.say(
            f"If the host does not wait for it, run this in a terminal and start the server again:\n  {command}"
        )


def run(options: argparse.Namespace) -> int:
    """Relay until the host has gone. Return the exit status: 2 for arguments that cannot be used."""
    # The SDK logs what strangers send, as it came.
    logging.disable(logging.CRITICAL)
    try:
        options.header = [_VARIABLE.sub(_value, text) for text in options.header]
        fields = headers_of(options)
        uploads = _uploads(options)
        upstream = HttpUpstream(
            options.url, connect_timeout=_CONNECT_PATIENCE, max_connections=_MOST_CONNECTIONS
        )
    except (WrongArgument, ValueError) as wrong:
        return failed(str(wrong), 2)
    pipes = own_pipes()
    terminal = HostTerminal(options.url)
    signs_in = "authorization" not in map(str.lower, fields)
    sign_in = sign_in_at(options.url, terminal) if signs_in else None
    server = RemoteServer(upstream, options.url, [*fields.items()], sign_in, terminal.say)
    results = None if options.save_to is None else ResultFolder(options.url, options.save_to)

    def relay(output: HostOutput) -> StdioRelay:
        return StdioRelay(server, output.write, terminal.say, uploads, results)

    asyncio.run(_relayed(pipes, server, relay))
    return 0


def _uploads(options: argparse.Namespace) -> LocalUploads | None:
    """Raises WrongArgument."""
    try:
        return LocalUploads(options.url, Folders(options.folder, options.deny)) if options.folder else None
    except OSError as failure:
        raise WrongArgument(f"--folder {failure.filename} cannot be used: {failure.strerror}.") from None


def _value(variable: re.Match[str]) -> str:
    value = os.environ.get(variable[1])
    if value is None:
        raise WrongArgument(f"--header names {variable[1]}, which is not set in the environment.")
    return value


async def _relayed(
    pipes: tuple[int, int], server: RemoteServer, begin: Callable[[HostOutput], StdioRelay]
) -> None:
    source, target = pipes
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    relay = begin(HostOutput(target, over.set))

    async def read() -> None:
        async for line in lines_of_host(source):
            await relay.take(line)
        async with asyncio.timeout(ANSWERS_PATIENCE):
            await relay.settle()

    tasks = [asyncio.ensure_future(read()), asyncio.ensure_future(over.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    (failure, _) = await asyncio.gather(*tasks, return_exceptions=True)
    await relay.end()
    await server.close()
    if isinstance(failure, Exception) and not isinstance(failure, TimeoutError):
        raise failure
