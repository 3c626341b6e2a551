"""Clients that move files with as little work of their own as a socket allows. All of it blocks."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from tests.bench.load import BOUNDARY, Address, LoadFailed

TIMEOUT = 300.0
"""Seconds that one socket may be silent before a measurement is given up."""

_BLOCK = 1024 * 1024


@dataclass(frozen=True)
class Source:
    """A file on disk that is sent, and what it should be found to be."""

    path: Path
    size: int
    sha256: str

    @classmethod
    def make(cls, path: Path, size: int) -> Source:
        """``size`` bytes that no two blocks of repeat, so that nothing in between could save work."""
        digest = hashlib.sha256()
        with path.open("wb") as file:
            for begin in range(0, size, _BLOCK):
                block = os.urandom(min(_BLOCK, size - begin))
                digest.update(block)
                file.write(block)
        return cls(path, size, digest.hexdigest())


def upload(address: Address, source: Source, *fields: str) -> bytes:
    """POST the file as a form to ``address``, with more header ``fields`` (lines); the body of the answer.

    The kernel sends it from the page cache. Raises LoadFailed for any answer but success.
    """
    begin = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{source.path.name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode()
    end = f"\r\n--{BOUNDARY}--\r\n".encode()
    lines = [
        f"POST {address.path} HTTP/1.1",
        f"Host: 127.0.0.1:{address.port}",
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}",
        f"Content-Length: {len(begin) + source.size + len(end)}",
        "Connection: close",
        *fields,
    ]
    with _connected(address.port) as connection, source.path.open("rb") as file:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + begin)
        connection.sendfile(file)
        connection.sendall(end)
        answer = b"".join(iter(lambda: connection.recv(_BLOCK), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 2"):
        raise LoadFailed(f"An upload was answered {answer[:300]!r}.")
    return body


def download(address: Address) -> int:
    """GET ``address``: how many bytes its body had. Raises LoadFailed."""
    request = f"GET {address.path} HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\nConnection: close\r\n\r\n"
    with _connected(address.port) as connection:
        connection.sendall(request.encode())
        head, body = _head(connection)
        if not head.startswith(b"HTTP/1.1 200"):
            raise LoadFailed(f"A download was answered {head[:300]!r}.")
        size, block = len(body), bytearray(_BLOCK)
        while got := connection.recv_into(block):
            size += got
    return size


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), TIMEOUT)


def _head(connection: socket.socket) -> tuple[bytes, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(64 * 1024)
        if not piece:
            raise LoadFailed("A download was answered with nothing.")
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    return head, body
