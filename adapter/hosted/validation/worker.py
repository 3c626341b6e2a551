"""A process that judges values by JSON Schemas, for ``ValidationWorkers``: it can be ended at any time.

``python -m adapter.hosted.validation.worker BYTES SECONDS`` says ``ready``, then answers each request on its standard
input. A request is three lengths (32 bits each, big-endian) and as many bytes of JSON: whether it is ``strict``, the
schema, the value. An answer is one length and JSON: ``faults`` and ``unjudged``, ``invalid`` with a sentence, or
``exceeded`` with one about the limit. When its standard input ends, it ends too; and by a signal of the system when
a check takes SECONDS, because an adapter that was killed ends nothing.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
from hashlib import sha256
from itertools import islice
from typing import Any

import orjson

from adapter.errors import BadJson
from adapter.rules.last_used import LastUsed
from adapter.rules.schema.checker import Checker, compile_schema
from adapter.rules.schema.cost import PARTS, SchemaInvalid, SchemaTooLarge
from adapter.rules.text.events import shortened
from adapter.rules.text.json_values import compact
from adapter.wire.envelope import parse

LENGTHS = struct.Struct(">III")
LENGTH = struct.Struct(">I")
READY = b"ready\n"

OUT_OF_MEMORY = 3
"""The exit status of a process that had no memory left to say so."""

_NICE = 5
_SCHEMAS_KEPT = 8
_PATTERNS_TOLD = 20

Request = tuple[bytes, bytes, bytes]


class ValidationServer:
    """Answers requests, each in its time."""

    def __init__(self) -> None:
        self._checkers = LastUsed[bytes, Checker](_SCHEMAS_KEPT)

    def __repr__(self) -> str:
        return f"<ValidationServer: {len(self._checkers)} schemas>"

    def answer(self, request: Request) -> dict[str, Any]:
        """The answer to one request. Raises MemoryError."""
        options, schema, value = request
        try:
            checker = self._checker(schema, strict=parse(options)["strict"])
            judgement = checker.judged(_read_json(value), steps=None)
        except (SchemaInvalid, BadJson) as invalid:
            return {"invalid": str(invalid)}
        except SchemaTooLarge:
            return {"exceeded": f"The schema has more than {PARTS} parts."}
        unjudged = islice(checker.unjudged.items(), _PATTERNS_TOLD)
        return {
            "faults": [fault.written() for fault in judgement.faults],
            "unjudged": {shortened(pattern, 500): why for pattern, why in unjudged},
        }

    def _checker(self, schema: bytes, *, strict: bool) -> Checker:
        key = sha256(schema).digest() + bytes([strict])
        checker = self._checkers.get(key)
        if checker is None:
            checker = compile_schema(_read_json(schema), strict=strict)
            self._checkers.put(key, checker)
        return checker


def main(memory: str, seconds: str) -> None:
    """Serve until standard input ends."""
    # Not before it is loaded: the thread that started it waits for that, and holds the interpreter meanwhile.
    os.setsid()
    _confine(int(memory))
    out = os.fdopen(os.dup(1), "wb")
    # Nobody else writes there.
    os.dup2(2, 1)
    server = ValidationServer()
    out.write(READY)
    out.flush()
    source = sys.stdin.buffer
    while len(head := source.read(LENGTHS.size)) == LENGTHS.size:
        try:
            options, schema, value = (source.read(length) for length in LENGTHS.unpack(head))
            signal.setitimer(signal.ITIMER_REAL, float(seconds))
            answer = compact(server.answer((options, schema, value))).encode()
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        signal.setitimer(signal.ITIMER_REAL, 0)
        out.write(LENGTH.pack(len(answer)) + answer)
        out.flush()


def _read_json(text: bytes) -> Any:
    """The value of a JSON text. Raises BadJson and MemoryError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if "memory" in str(error):
            raise MemoryError from None
    return parse(text)


def _confine(memory: int) -> None:
    try:
        import resource
    except ImportError:
        # Where there are no limits of resources, time and steps remain.
        return
    for limit, value in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(limit)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (allowed, allowed))
    os.nice(_NICE)


if __name__ == "__main__":
    main(*sys.argv[1:])
