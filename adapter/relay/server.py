"""One entry of ``servers[]`` as the relay uses it: an upstream, its health and its rules."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from adapter.errors import AdapterError, BadRequest, UpstreamUnhealthy
from adapter.relay.background import nothing
from adapter.relay.replies import ANSWER_LIMIT
from adapter.relay.stages import StageTable
from adapter.rules.access.headers import AnswerHeaders, Field, missing, to_upstream
from adapter.rules.access.principals import Caller
from adapter.rules.calls.circuit_breaker import Breaker
from adapter.rules.text.events import Redactor
from adapter.rules.text.unicode import shown
from adapter.upstream.port import ConnectionWatch, ProcessUse, ReadLimit, Upstream, header
from adapter.wire.envelope import NOTIFICATION, Batch, Envelope
from adapter.wire.eras import Era

REFUSED = (401, 403)
"""Statuses of an upstream that refuses whoever asks."""

READ = 4096
"""Bytes of a refusal that is read. A longer one is a page for people, and a secret may be cut in it."""

SHOWN = 300
"""Characters of it that are kept."""

HIDDEN = "[hidden]"
_SHORTEST = 6
_HARMLESS = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "origin",
        "user-agent",
    }
)
_BETWEEN = re.compile(r"[\s,;=]+")
_redacted = Redactor(HIDDEN)

Fields = Iterable[tuple[str, str]]


class CallerRefusal(NamedTuple):
    """``at`` in Unix seconds. ``text`` is the upstream's own, without credentials; empty if it cannot be shown."""

    at: float
    status: int
    text: str


def caller_refusal(
    at: float, status: int, answer: Fields, body: object, request: Fields, secrets: Iterable[str | None] = ()
) -> CallerRefusal:
    """Read a refusal with these header fields and this body; one that streams, or is long, has no text.

    Values of the ``request``'s own fields, and ``secrets``, are hidden in it: servers repeat what they refuse.
    """
    is_plain = header([*answer], "content-encoding") in (None, "identity")
    if not isinstance(body, bytes) or len(body) > READ or not is_plain:
        return CallerRefusal(at, status, "")
    values = [value for name, value in request if name.lower() not in _HARMLESS]
    words = {word for value in (*values, *filter(None, secrets)) for word in _words(value)}
    ordered = sorted((word for word in words if len(word) >= _SHORTEST), key=len, reverse=True)
    text = body.decode("utf-8", "replace").strip()
    for word in ordered:
        text = text.replace(word, HIDDEN)
    return CallerRefusal(at, status, shown(_redacted(text), SHOWN))


def _words(value: str) -> set[str]:
    """A value and its parts: a server repeats a cookie without its name, and a token without its scheme."""
    return {value, *value.split(), *_BETWEEN.split(value)}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds an upstream may send no message before an exchange fails; None: it may take for ever.

    ``tools`` are the tools that have a time of their own. ``total`` is what a tool call may take in all, whatever the
    upstream says meanwhile; None: as long as it likes.
    """

    tool_call: float | None = 60.0
    request: float = 60.0
    tools: Mapping[str, float | None] = field(default_factory=dict)
    total: ReadLimit | None = None


@dataclass(slots=True)
class TransferRules:
    """The rules for what passes between clients and one upstream.

    ``passthrough`` and ``required`` name fields of the client's, ``static`` are fields that every request gets.
    ``answer_limit``: bytes of an answer, or of one event, that are read.
    """

    passthrough: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()
    static: tuple[tuple[str, str], ...] = ()
    answer_headers: AnswerHeaders = field(default_factory=AnswerHeaders)
    answer_limit: int = ANSWER_LIMIT

    def passed(
        self, fields: Collection[Field], withhold: frozenset[str], server: str = "This server"
    ) -> list[Field]:
        """The fields of a client's request that the upstream gets; ``withhold``: see ``to_upstream``. Raises BadRequest
        where one is absent that ``server`` requires.
        """
        absent = missing(self.required, fields)
        if absent is not None:
            raise BadRequest(f"{server} requires the header {absent} with every request.")
        return to_upstream(fields, passthrough=self.passthrough, static=self.static, withhold=withhold)


@dataclass(slots=True)
class StagedTools:
    """The ``configured`` tools of one server, which it has to list because they have stages of their own.

    ``missing`` are those that it did not list at the last look, None while that is not known. ``refused``: it shows
    the adapter no list. ``stale`` is set while the server has to be looked at again.
    """

    configured: frozenset[str] = frozenset()
    missing: frozenset[str] | None = field(init=False)
    refused: bool = False
    on_look: Callable[[str], None] = field(default=nothing, init=False)
    """Is told of the result of each look."""
    stale: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.missing = None if self.configured else frozenset()
        self.changed()

    @property
    def settled(self) -> bool:
        """Tell whether all tools were there at the last look, and the server has not begun anew since."""
        return self.missing == frozenset() and not self.stale.is_set()

    @property
    def is_ready(self) -> bool:
        """Tell whether the configured tools are there. A server that shows its list to clients only counts as well, for
        nothing can be wrong as far as anybody knows; one whose list has not been read yet does not.
        """
        return not self.missing and (self.missing is not None or self.refused)

    def changed(self) -> None:
        """Look again: the server began anew, so it may be another version."""
        if self.configured:
            self.stale.set()


class EraBridge(Protocol):
    """Translates for clients of an era that a server does not speak.

    ``asks_processes``: the server consists of processes, so modern requests wait until the bridge is ready for them.
    """

    asks_processes: bool

    async def ready(self, caller: Caller, read_timeout: float | None) -> None:
        """Find what has to be known of the eras of processes before a modern request of the caller is sent. Raises
        UpstreamSilent after ``read_timeout`` seconds.
        """

    def found(self, eras: frozenset[Era]) -> None:
        """Note the eras that the server speaks."""

    async def look(self, ask: Any, known: frozenset[Era]) -> bool:
        """Look which eras the server speaks, in the name of the client whose request ``ask`` it has refused.

        True if another translates for it now than when the request was sent, as these eras were ``known``: then it may
        be sent once more.
        """


@dataclass(slots=True)
class Server:
    """``stages`` are those of the requests that are *read*; what has none is piped.

    ``wiring`` knows the upstream's tools that have stages of their own, so that it has to list them.
    ``issues_ids``: its last answer to ``initialize`` carried a session id; None until there was one.
    ``apart``: callers bring credentials of their own for it, so it may say other things to each.
    ``shares``: the sessions of one principal share one upstream session. ``process_use`` tells the processes of an
    upstream that consists of some, None for any other. ``refusal`` is the last that its upstream gave to a caller.
    """

    id: str
    mount: str
    upstream: Upstream
    breaker: Breaker | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    rules: TransferRules = field(default_factory=TransferRules)
    stages: StageTable = field(default_factory=StageTable)
    wiring: StagedTools = field(init=False)
    issues_ids: bool | None = field(default=None, init=False)
    shares: bool = field(default=False, init=False)
    eras: frozenset[Era] = field(default=frozenset(), init=False)
    """The eras that the upstream speaks; empty while that is not known."""
    bridge: EraBridge | None = field(default=None, init=False)
    """None where nothing is translated."""
    apart: bool = field(default=False, init=False)
    process_use: Callable[[], ProcessUse | None] = field(default=nothing, init=False)
    connections: ConnectionWatch | None = field(default=None, init=False)
    """The connections of an upstream over HTTP; None for any other."""
    refusal: CallerRefusal | None = field(default=None, init=False)
    retired: bool = field(default=False, init=False)
    """The settings have another server in its place, or none."""
    trouble: str | None = field(default=None, init=False)
    """Why it did not answer the adapter last, as clients may read it; None while it answers."""
    on_unreachable: Callable[[], None] = field(default=nothing, init=False)
    """Is called whenever no connection to it could be opened."""
    on_doubt: set[Callable[[], None]] = field(default_factory=set, init=False)
    """Are told when it may list something else than before: it began anew, does not answer, or answers again."""

    def __post_init__(self) -> None:
        self.wiring = StagedTools(self.stages.upstream_tools)

    def began_anew(self) -> None:
        """Note that the upstream forgot a session, so it may be another version."""
        if self.stages.guard is not None:
            self.stages.guard.changed()
        self.wiring.changed()
        self.doubt()

    def unreachable(self, error: AdapterError) -> None:
        """Note that no connection to it could be opened, whoever needed one."""
        self.on_unreachable()
        self.failed(error)

    def failed(self, error: AdapterError) -> None:
        """Note why it does not answer. The first time, its lists are looked at again."""
        before, self.trouble = self.trouble, str(error)
        if before is None:
            self.doubt()

    def doubt(self) -> None:
        """Have its lists be looked at again."""
        for tell in tuple(self.on_doubt):
            tell()

    def require_healthy(self) -> None:
        """Raise UpstreamUnhealthy while the breaker is open or half-open."""
        if self.breaker is None or self.breaker.allows_calls():
            return
        wait = self.breaker.retry_after(asyncio.get_running_loop().time())
        raise UpstreamUnhealthy(
            data={"detail": UpstreamUnhealthy.hint, "server_id": self.id, "retry_after": round(wait, 1)},
            retry_after=wait,
        )

    def require_clear(self, message: Envelope | Batch) -> None:
        """Raise BadRequest for what the upstream might take for something else than is judged here.

        Where nothing is judged everything is clear. A request without an id is judged by nobody, and an upstream might
        do it: a tool call, or any that access rules are about.
        """
        if self.stages.empty:
            return
        for each in message.members if isinstance(message, Batch) else (message,):
            if each.doubt is not None:
                raise BadRequest(each.doubt)
            if each.kind is NOTIFICATION and each.method in self.stages.requests:
                raise BadRequest(f"{each.method} is a request and needs an id.")

    def read_timeout_of(self, method: str, name: str | None = None) -> float | None:
        """The time that an exchange may be silent: no limit for a subscription, which is normally silent."""
        if method == "tools/call":
            tools = self.timeouts.tools
            return tools[name] if name is not None and name in tools else self.timeouts.tool_call
        return None if method == "subscriptions/listen" else self.timeouts.request

    def listener(self) -> Callable[[bytes], None] | None:
        """A function that sees all chunks of one stream of this upstream; None if nothing needs to see them."""
        return self.stages.guard.listener() if self.stages.guard is not None else None


Servers = Mapping[str, Server]
"""Servers by their id."""
