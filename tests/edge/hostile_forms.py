"""Upload requests as nobody should send them, drawn from a seed, byte by byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

LARGEST = 32 * 1024
"""Bytes of a file that the adapter of these tests takes."""

NAMES = (
    "../../../../etc/passwd",
    "..\\..\\windows\\win.ini",
    "/etc/shadow",
    "C:\\con",
    "con.txt",
    ".",
    "..",
    "...",
    " ",
    ".hidden",
    "~root",
    "a\x00b.txt",
    "%00.txt",
    "%2e%2e%2f%2e%2e%2fx",
    "..%c0%af..%c0%afx",
    "\u202egpj.exe",
    "名前.txt",
    "e\u0301\u0308" * 40 + ".txt",
    "💥" * 80,
    "x" * 5000 + ".png",
    'quo"te;name=x.txt',
    "-rf *",
    "$(id).txt",
    "a/" * 300 + "b",
    "\u2028line\u0085s.txt",
    "\ufeff\u200b",
    "<script>alert(1)</script>.html",
    "aux.tar.gz.",
    "nul",
    "\r\nX-Injected: yes",
)
"""File names that lead elsewhere, hide, lie or break what quotes them badly."""

_BOUNDARIES = (
    "----b",
    "x",
    "-",
    "'()+_,-./:=?",
    "b" * 70,
    "b" * 71,
    "",
    "a b",
    'a"b',
    "--",
    "\xff\xfe",
    "file",
)
_NEWLINES = (b"\r\n",) * 36 + (b"\n", b"\r", b"\r\r\n", b"\n\r")


@dataclass
class Sent:
    """One request's bytes. ``whole``: its framing promises no more than comes, so that an answer is due."""

    data: bytes
    whole: bool


def upload(draw: random.Random, target: str, session: str | None) -> Sent:
    """A request with a hostile form to ``target``; ``session`` goes into its header."""
    boundary = draw.choice(_BOUNDARIES) if draw.random() < 0.15 else "----b"
    body = _body(draw, boundary.encode("latin-1"))
    if draw.random() < 0.4:
        body = draw.choice(_MUTATIONS)(draw, body)
    fields = [
        "Connection: close",
        f"Host: {draw.choice(('127.0.0.1', 'localhost'))}",
        f"Content-Type: {_content_type(draw, boundary)}",
    ]
    if session is not None:
        fields.append(f"Mcp-Session-Id: {session}")
    framing, data, whole = draw.choice(_FRAMINGS)(draw, body)
    head = "\r\n".join((f"POST {target} HTTP/1.1", *fields, *framing)).encode("latin-1")
    return Sent(head + b"\r\n\r\n" + data, whole)


# --- the form -------------------------------------------------------------------------------------------------


def _content_type(draw: random.Random, boundary: str) -> str:
    usual = f"multipart/form-data; boundary={boundary}"
    if draw.random() < 0.85:
        return usual
    return draw.choice(
        (
            f'multipart/form-data; boundary="{boundary}"',
            f"Multipart/Form-Data;boundary={boundary}; charset=utf-8",
            f"{usual}; boundary=other",
            f"multipart/form-data; x=; boundary ={boundary}",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/mixed; boundary=----b",
            "application/x-www-form-urlencoded",
            "application/json",
            "multipart/form-data; boundary*=utf-8''%2d%2d%2d%2db",
            ";" * 500,
            "",
        )
    )


def _body(draw: random.Random, boundary: bytes) -> bytes:
    newline = draw.choice(_NEWLINES)
    parts = [_part(draw, newline, boundary) for _ in range(draw.choice((0, 1, 1, 1, 1, 2, 2, 3, 12)))]
    opened = b"".join(b"--" + boundary + newline + part + newline for part in parts)
    end = draw.choice(
        (b"--" + boundary + b"--" + newline,) * 8 + (b"", b"--" + boundary, b"--" + boundary + b"-")
    )
    preamble = draw.choice((b"",) * 6 + (b"\r\n" * 3, b"a preamble\r\n", b"--" + boundary[:-1] + b"\r\n"))
    epilogue = draw.choice((b"",) * 6 + (b"the end", b"--" + boundary + newline, b"\0" * 3000, b"\r\n\r\n"))
    return preamble + opened + end + epilogue


def _part(draw: random.Random, newline: bytes, boundary: bytes) -> bytes:
    fields = [_disposition(draw)]
    if draw.random() < 0.2:
        fields.append(
            draw.choice(
                (
                    b"Content-Type: text/html\0; charset=\xff",
                    b"Content-Type: " + b"a/" * 300,
                    b"Content-Type: text/plain\tX: y",
                    b"Content-Transfer-Encoding: base64",
                    b"Content-Length: -1",
                    b"X-Long: " + b"h" * 20_000,
                    b"\r\n".join(b"X-%d: y" % number for number in range(40)),
                    b": no name",
                    b"no colon",
                    b" folded: yes",
                    b"N\xc3\xa4me: \x01\x02",
                )
            )
        )
    draw.shuffle(fields)
    return newline.join((*fields, b"", _content(draw, boundary)))


def _disposition(draw: random.Random) -> bytes:
    name = draw.choice(NAMES).encode("utf-8", "surrogatepass")
    usual = b'Content-Disposition: form-data; name="file"; filename="%s"' % name
    if draw.random() < 0.8:
        return usual
    return draw.choice(
        (
            usual + b"\r\n" + usual,
            usual + b"\r\nContent-Disposition: form-data; name=sha256",
            b"Content-Disposition: form-data; name=file; filename*=UTF-8''%2e%2e%2f%00" + b"%41" * 400,
            b"Content-Disposition: form-data; name=file; filename*=utf-16''%ff%fe; filename=a",
            b"Content-Disposition: form-data; name=file; filename*=UTF-8''%ED%A0%80.txt; filename=b",
            b'Content-Disposition: form-data; name="file"; filename="open',
            b'Content-Disposition: form-data; name="file"; filename=""',
            b'Content-Disposition: form-data; name="file"',
            b'Content-Disposition: form-data; name="sha256"',
            b'Content-Disposition: attachment; name="file"; filename="a"',
            b"CONTENT-DISPOSITION:form-data;NAME=file;FILENAME=" + name.replace(b"\r\n", b""),
            b"Content-Disposition: form-data; name=file; name=sha256; filename=a; filename=../b",
            b"Content-Disposition: " + b"form-data;" * 900,
            b"Content-Disposition",
            b"X-None: x",
        )
    )


def _content(draw: random.Random, boundary: bytes) -> bytes:
    return draw.choice(
        (
            b"",
            b"hello",
            b"\0" * 100,
            draw.randbytes(draw.randrange(3000)),
            b"\r\n--" + boundary[:-1],
            b"\r\n-" * 500,
            b"--" + boundary + b"--",
            b"a" * 64,
            b"x" * LARGEST,
            b"x" * (LARGEST + 1),
            b"Content-Type: multipart/mixed; boundary=in\r\n\r\n--in\r\n" + b"deeper" + b"\r\n--in--",
        )
    )


# --- what happens to it on the way ----------------------------------------------------------------------------


def _at(draw: random.Random, body: bytes) -> int:
    return draw.randrange(len(body) + 1)


def _cut(draw: random.Random, body: bytes) -> bytes:
    return body[: _at(draw, body)]


def _without_a_slice(draw: random.Random, body: bytes) -> bytes:
    at = _at(draw, body)
    return body[:at] + body[at + draw.randrange(1, 40) :]


def _with_noise(draw: random.Random, body: bytes) -> bytes:
    at = _at(draw, body)
    return body[:at] + draw.randbytes(draw.randrange(1, 20)) + body[at:]


def _with_flipped_bits(draw: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(min(len(body), draw.randrange(1, 6))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _with_a_slice_twice(draw: random.Random, body: bytes) -> bytes:
    first, last = sorted((_at(draw, body), _at(draw, body)))
    return body[:last] + body[first:last] + body[last:]


def _with_other_newlines(draw: random.Random, body: bytes) -> bytes:
    return body.replace(b"\r\n", draw.choice(_NEWLINES), draw.choice((1, 2, 3, -1)))


_Mutation = Callable[[random.Random, bytes], bytes]
_MUTATIONS: tuple[_Mutation, ...] = (
    _cut,
    _without_a_slice,
    _with_noise,
    _with_flipped_bits,
    _with_a_slice_twice,
    _with_other_newlines,
)


# --- how it is framed -----------------------------------------------------------------------------------------


def _chunks(draw: random.Random, body: bytes) -> bytes:
    at, pieces = 0, []
    while at < len(body):
        size = draw.choice((1, 2, 7, 100, 5000, 40_000))
        piece = body[at : at + size]
        pieces.append(b"%x\r\n%s\r\n" % (len(piece), piece))
        at += max(size, len(body) // 50)
    return b"".join(pieces)


_Framed = tuple[list[str], bytes, bool]


def _with_its_length(_: random.Random, body: bytes) -> _Framed:
    return [f"Content-Length: {len(body)}"], body, True


def _with_too_little_length(draw: random.Random, body: bytes) -> _Framed:
    return [f"Content-Length: {_at(draw, body)}"], body, True


def _with_too_much_length(draw: random.Random, body: bytes) -> _Framed:
    return [f"Content-Length: {len(body) + draw.choice((1, 7, 100_000))}"], body, False


def _with_an_absurd_length(draw: random.Random, body: bytes) -> _Framed:
    length = draw.choice(("-1", "1e9", "9" * 30, "0x10", "", "+5", "1, 2", "12abc"))
    return [f"Content-Length: {length}"], body, False


def _chunked(draw: random.Random, body: bytes) -> _Framed:
    return ["Transfer-Encoding: chunked"], _chunks(draw, body) + b"0\r\n\r\n", True


def _chunked_and_cut(draw: random.Random, body: bytes) -> _Framed:
    return ["Transfer-Encoding: chunked"], _cut(draw, _chunks(draw, body)), False


def _chunked_badly(draw: random.Random, body: bytes) -> _Framed:
    size = draw.choice((b"zz", b"-5", b"fffffffffffffffff", b"5;" + b"x" * 9000, b"", b"\0"))
    return ["Transfer-Encoding: chunked"], _chunks(draw, body) + size + b"\r\nhello\r\n0\r\n\r\n", False


def _framed_twice(draw: random.Random, body: bytes) -> _Framed:
    fields = [f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"]
    draw.shuffle(fields)
    return fields, body, False


def _encoded(draw: random.Random, body: bytes) -> _Framed:
    coding = draw.choice(("gzip", "br", "x", "identity, gzip"))
    return [f"Content-Length: {len(body)}", f"Content-Encoding: {coding}"], body, True


_Framing = Callable[[random.Random, bytes], _Framed]
_FRAMINGS: tuple[_Framing, ...] = (
    *(_with_its_length,) * 16,
    *(_chunked,) * 8,
    _with_too_little_length,
    _with_too_much_length,
    _with_an_absurd_length,
    _chunked_and_cut,
    _chunked_badly,
    _framed_twice,
    _encoded,
)
