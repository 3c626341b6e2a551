"""The history of a run: each request with what its client was told, each execution at the upstream, each fault.

All moments are seconds of one monotonic clock, that of the process which drives the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Verb(StrEnum):
    """The kinds of requests that clients make."""

    OPEN = "open"
    ASK = "ask"
    """A list of tools, or a call of a tool of the adapter's own."""
    COUNT = "count"
    STREAM = "stream"
    UPLOAD = "upload"
    CONSUME = "consume"
    PRODUCE = "produce"
    DOWNLOAD = "download"
    CHANGE = "change"
    """A call after which a definition of the upstream is another one, for all: pinned sessions may end from then on."""
    REVOKE = "revoke"
    """A list of tools after a pinned definition changed: the session ends with the answer."""
    END = "end"


CALLS = frozenset({Verb.COUNT, Verb.STREAM, Verb.CONSUME, Verb.PRODUCE, Verb.CHANGE})
"""Requests that run a tool of the upstream, which records each of them."""

STORING = frozenset({Verb.UPLOAD, Verb.PRODUCE})
"""Requests that leave a file behind."""

ENDING = frozenset({Verb.END, Verb.REVOKE})
"""Requests whose acknowledgement ends a session."""


class Told(StrEnum):
    """The meaning of an answer for the client that got it."""

    DONE = "done"
    GONE = "gone"
    """The session or the file does not exist."""
    REFUSED = "refused"
    """An error that promises nothing: not now, or not so much."""
    FAULTY = "faulty"
    """An internal error, which no client should ever see."""
    BROKEN = "broken"
    """The connection was refused, or broke before the answer was complete."""
    EMPTY = "empty"
    """The answer ended in good order without a response."""
    SILENT = "silent"
    """Nothing came within the bound."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One request. ``session`` is the client's own name of its session, unique in the run; ``token`` that of the
    request.

    ``said``: the token, session id or SHA-256 in the answer. ``file``: the handle or URI that an answer named, or that
    the request is about; ``digest`` and ``size`` describe its content. ``credential``: an upload URL that is good for
    one upload. ``pinned``: its session ends when a tool changes. ``calm``: made after the last fault was over.
    """

    verb: Verb
    session: str
    token: str
    begun: float
    ended: float
    told: Told
    said: str = ""
    file: str = ""
    digest: str = ""
    size: int = 0
    credential: str = ""
    detail: str = ""
    pinned: bool = False
    calm: bool = False

    def __str__(self) -> str:
        about = f" {self.file[-12:]}" if self.file else ""
        more = f" ({self.detail})" if self.detail else ""
        span = f"{self.begun:9.3f} -> {self.ended:9.3f}"
        return f"{span}  {self.session:<10} {self.verb} {self.token}{about}: {self.told}{more}"


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a tool, as the upstream recorded it before it answered."""

    token: str
    upstream_session: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was done to a process, a connection, a disk or a clock. It was over at ``ended``."""

    kind: str
    target: str
    begun: float
    ended: float

    def __str__(self) -> str:
        return f"{self.begun:9.3f} -> {self.ended:9.3f}  FAULT      {self.kind} of {self.target}"


@dataclass
class History:
    """All that is known of a run."""

    operations: list[Operation] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
