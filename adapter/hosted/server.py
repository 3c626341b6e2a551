"""The MCP server of the adapter's own tools: what it offers, its answer to each method in both eras, and the calls that
run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, InternalError
from adapter.pipeline.call import CallClient, CallTime, PlannedCall, Say, say_nothing
from adapter.pipeline.failures import CallRefused, Outcome
from adapter.pipeline.plan import GRACE, ToolPlan
from adapter.rules.calls.arguments import annotated, check_parameters
from adapter.rules.calls.input_schemas import DeclaredInputs
from adapter.upstream.local.events import EventStream
from adapter.upstream.local.port import LocalHead, LocalRequest, ProgressToken
from adapter.upstream.local.replies import (
    INTERNAL_ERROR,
    SERVER_INFO_KEY,
    LocalAnswer,
    PendingReply,
    RpcRefused,
    notification,
    refusal,
    require_version,
    result,
)
from adapter.upstream.local.sessions import LocalSession, LocalSessions, PortableSessions
from adapter.wire.envelope import INVALID_PARAMS, METHOD_NOT_FOUND, Envelope
from adapter.wire.eras import LEGACY_VERSIONS, MODERN_VERSIONS, Era
from adapter.wire.names import SUBSCRIPTION_KEY, VERSION_KEY
from adapter.wire.sse import encode

Work = Callable[[PlannedCall], Awaitable[Outcome]]
"""What a tool does with arguments that fit. Raises StageFailed."""


@dataclass(frozen=True, slots=True)
class HostedTool:
    """A tool of ``server``: its ``definition`` in ``tools/list``, with at least ``name`` and ``inputSchema``, and its
    ``work`` behind the stages of its ``plan``, all within ``timeout`` seconds. ``kept`` says in words how long its
    results are kept.

    The work is cancelled when nobody waits for the answer any more, and when its time has ended.
    """

    server: str
    definition: Mapping[str, Any]
    work: Work
    plan: ToolPlan
    timeout: float
    kept: str | None = None

    @property
    def name(self) -> str:
        return str(self.definition["name"])

    def called(self, arguments: Mapping[str, Any], client: CallClient) -> PlannedCall:
        """One call of it, whose time begins now."""
        timeout = self.timeout
        call_time = CallTime(timeout, time.monotonic() + timeout, time.time() + timeout)
        return PlannedCall(self.server, self.name, arguments, self.work, client=client, time=call_time)


def definition_of(
    name: str,
    inputs: DeclaredInputs,
    title: str | None,
    description: str,
    annotations: Mapping[str, Any],
) -> dict[str, Any]:
    """The entry in ``tools/list`` of a tool as the settings declare it."""
    members = {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": inputs.schema,
        "annotations": dict(annotations),
    }
    # A schema may be empty, and is required all the same.
    return {key: value for key, value in members.items() if value or key == "inputSchema"}


Overdue = Callable[[], LocalAnswer | None]
"""The answer to a call whose time has ended; None: it is about to end by itself."""


class RunningCall:
    """One call, and the ``reply`` that its client gets.

    ``token`` is the client's progress token, None where it wants no progress or can read no stream. ``ended`` is called
    once, when the tool has ended or was never begun. After ``limit`` seconds the call is answered by itself.
    """

    __slots__ = ("_alarm", "_ended", "_late", "_limit", "_overdue", "_percent", "_task", "_token", "reply")

    def __init__(
        self, token: ProgressToken | None, ended: Callable[[RunningCall], None], limit: float
    ) -> None:
        self.reply = PendingReply(self.cancel, limit)
        self._token = token
        self._ended = ended
        self._limit = limit
        self._percent = -1.0
        self._task: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._overdue: Overdue | None = None
        self._late: LocalAnswer | None = None

    def begin(self, work: Callable[[], Awaitable[LocalAnswer]], overdue: Overdue) -> None:
        """Start ``work``, which answers every failure of the tool itself.

        At its limit it is cancelled, and the call is answered with what ``overdue`` gives, when the work has
        cleaned up or a moment later.
        """
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(work))
        # A task that is cancelled before its first step never runs its own ``finally``.
        self._task.add_done_callback(self._over)
        self._overdue = overdue
        self._alarm = loop.call_later(self._limit, self._expire)

    async def progress(self, percent: float, message: str | None = None) -> None:
        """See ProgressReporter."""
        if self._token is None or percent <= self._percent:
            return
        # "The progress value MUST increase with each notification" (both eras, "Progress").
        self._percent = percent
        params = {"progressToken": self._token, "progress": percent, "total": 100}
        if message is not None:
            params["message"] = message
        await self.reply.send(notification("notifications/progress", params))

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def wait(self) -> None:
        """Wait until the tool has ended, whichever way."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _run(self, work: Callable[[], Awaitable[LocalAnswer]]) -> None:
        answer = await work()
        # Not only when the task is over, which its own loop tells in one more turn.
        if self._late is None:
            self.reply.answer(answer)

    def _expire(self) -> None:
        """Cancel the tool at its limit, and wait for it no longer than it may take to clean up."""
        assert self._overdue is not None and self._task is not None, "the alarm is set with both"
        if self._task.done():
            return
        self._late = self._overdue()
        if self._late is not None:
            self._task.cancel()
            self._alarm = self._task.get_loop().call_later(GRACE, self.reply.answer, self._late)

    def _over(self, task: asyncio.Task[None]) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._late is not None and not self.reply.withdrawn:
            self.reply.answer(self._late)
        self.reply.end()
        if not task.cancelled():
            task.exception()
        # Each of them knows this call, and all would stay until the collector comes by.
        self._task = self._alarm = self._overdue = None
        self._ended(self)


CLOSE_PATIENCE = 2.0
"""Seconds that tools get to end when the server closes."""


@dataclass(frozen=True, slots=True)
class Served:
    """The identity of the server, and the way it answers.

    ``unknown_tool_code`` is the JSON-RPC error for a name it does not know, ``page`` the number of tools that
    ``tools/list`` shows at once, ``sessions`` the number of legacy sessions that live at most.
    """

    name: str
    version: str
    unknown_tool_code: int = METHOD_NOT_FOUND
    page: int = 100
    sessions: int = 10_000

    @property
    def info(self) -> dict[str, str]:
        return {"name": self.name, "version": self.version}

    def introduced(self, value: dict[str, Any]) -> dict[str, Any]:
        """``value`` with the capabilities."""
        return {**value, "capabilities": {"tools": {}}}


class HostedServer:
    """A LocalServer of ``tools``, which stay the same. Raises ValueError for two of one name.

    Modern clients may subscribe, but there is nothing that they are told: each of their streams is kept with the
    message that ends it.
    """

    reads_params = True

    def __init__(self, served: Served, tools: Iterable[HostedTool], log: FilteringBoundLogger) -> None:
        self.served = served
        self.sessions: LocalSessions = PortableSessions(served.sessions)
        self._subscriptions: dict[EventStream, bytes] = {}
        self._log = log
        self._running: set[RunningCall] = set()
        offered = list(tools)
        self.tools = {tool.name: tool for tool in offered}
        if len(self.tools) < len(offered):
            raise ValueError("two tools of a hosted server have one name")
        self._definitions = [tool.definition for tool in offered]

    def __repr__(self) -> str:
        name = self.served.name
        return f"<HostedServer {name!r}: {len(self.sessions)} sessions, {self.running} calls running>"

    @property
    def running(self) -> int:
        """The number of calls whose tool has not ended, also of those that were given up."""
        return len(self._running)

    def answer(self, request: LocalRequest) -> LocalAnswer | PendingReply | EventStream:
        """See LocalServer."""
        method, modern = request.envelope.method, request.head.era is Era.MODERN
        if modern:
            require_version(request.meta[VERSION_KEY])
        if method == "tools/call":
            return self._call(request)
        if method == "tools/list":
            return self._result(request, self._listed(request), cacheable=True)
        if modern and method == "server/discover":
            value = self.served.introduced({"supportedVersions": list(MODERN_VERSIONS)})
            return self._result(request, value, cacheable=True)
        if modern and method == "subscriptions/listen":
            return self._subscribe(request)
        if not modern and method == "ping":
            return self._result(request, {})
        if not modern and method == "initialize" and request.session is None:
            return self._initialize(request)
        raise RpcRefused(METHOD_NOT_FOUND, f"Method not found: {method}")

    async def observe(self, envelope: Envelope, session: LocalSession, head: LocalHead) -> None:
        """See LocalServer. A hosted server sends no requests and has no use for notifications."""

    async def close(self) -> None:
        """Cancel every call, end every stream, and give the tools a moment to end."""
        for stream, ended in list(self._subscriptions.items()):
            stream.end(encode(ended))
        ending = [asyncio.ensure_future(call.wait()) for call in self._running]
        for call in list(self._running):
            call.cancel()
        if ending:
            _, late = await asyncio.wait(ending, timeout=CLOSE_PATIENCE)
            for task in late:
                task.cancel()

    def _initialize(self, request: LocalRequest) -> LocalAnswer:
        """Negotiate a legacy session: the version asked for where it is served, else the latest."""
        params = request.params if isinstance(request.params, dict) else {}
        wanted = params.get("protocolVersion")
        if not isinstance(wanted, str):
            raise RpcRefused(INVALID_PARAMS, "initialize requires a protocolVersion.")
        version = wanted if wanted in LEGACY_VERSIONS else LEGACY_VERSIONS[-1]
        value = self.served.introduced({"protocolVersion": version, "serverInfo": self.served.info})
        session = self.sessions.open(version)
        return LocalAnswer(result(request.id_bytes, value), session_id=session.id)

    def _result(
        self, request: LocalRequest, value: dict[str, Any], *, cacheable: bool = False
    ) -> LocalAnswer:
        if request.head.era is Era.MODERN:
            value = _modern(value, self.served.info, cacheable=cacheable)
        return LocalAnswer(result(request.id_bytes, value))

    # --- tools ------------------------------------------------------------------------------------------------

    def _listed(self, request: LocalRequest) -> dict[str, Any]:
        cursor = request.params.get("cursor") if isinstance(request.params, dict) else None
        begin = 0
        if cursor is not None:
            # No list is longer than fits; int() of thousands of digits raises.
            if not (isinstance(cursor, str) and cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
                raise RpcRefused(INVALID_PARAMS, "This cursor is not from this server.")
            begin = int(cursor)
        end = begin + self.served.page
        value: dict[str, Any] = {"tools": self._definitions[begin:end]}
        if end < len(self._definitions):
            value["nextCursor"] = str(end)
        return value

    def _call(self, request: LocalRequest) -> PendingReply:
        params = request.params if isinstance(request.params, dict) else {}
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise RpcRefused(INVALID_PARAMS, "tools/call requires the name of a tool.")
        tool = self.tools.get(name)
        if tool is None:
            raise RpcRefused(self.served.unknown_tool_code, f"Unknown tool: {name}")
        arguments = {} if arguments is None else arguments
        if not isinstance(arguments, dict):
            raise RpcRefused(INVALID_PARAMS, "The arguments of a tool must be an object.")
        if request.head.era is Era.MODERN:
            mirrored = dict(annotated(tool.definition.get("inputSchema")))
            check_parameters(mirrored, arguments, request.head.fields)
        running = RunningCall(request.progress_token, self._running.discard, tool.timeout)
        self._running.add(running)
        session = None if request.session is None else request.session.id
        client = CallClient(request.head.caller, session, running.progress, _speaker(request.session))
        call = tool.called(arguments, client)
        running.begin(partial(self._run, tool, call, request), partial(self._overdue, tool, call, request))
        return running.reply

    def _overdue(self, tool: HostedTool, call: PlannedCall, request: LocalRequest) -> LocalAnswer | None:
        try:
            outcome = tool.plan.overdue(call)
        except CallRefused as refused:
            return _refusal(request, refused.code, str(refused), refused.data)
        return None if outcome is None else self._result(request, outcome.as_result())

    async def _run(self, tool: HostedTool, call: PlannedCall, request: LocalRequest) -> LocalAnswer:
        try:
            outcome = await tool.plan.walk(call)
            return self._result(request, outcome.as_result())
        except CallRefused as refused:
            return _refusal(request, refused.code, str(refused), refused.data)
        except AdapterError as error:
            return _refusal(request, error.rpc, str(error), error.data)
        except Exception:
            # A client gets an answer to whatever a tool raises; which part of it is secret is not known here.
            self._log.exception("a hosted tool failed unexpectedly", server=self.served.name, tool=tool.name)
            return _refusal(request, INTERNAL_ERROR, InternalError.hint, None)

    def _forget(self, stream: EventStream) -> None:
        self._subscriptions.pop(stream, None)

    def _subscribe(self, request: LocalRequest) -> EventStream:
        if not isinstance(request.params.get("notifications"), dict):
            raise RpcRefused(INVALID_PARAMS, "subscriptions/listen requires the notifications to listen for.")
        meta = {SUBSCRIPTION_KEY: request.envelope.id}
        stream = EventStream(lambda: self._forget(stream))
        self._subscriptions[stream] = result(request.id_bytes, {"resultType": "complete", "_meta": meta})
        params = {"notifications": {}, "_meta": meta}
        stream.offer(encode(notification("notifications/subscriptions/acknowledged", params)))
        return stream


def _modern(
    value: dict[str, Any], server_info: Mapping[str, Any], *, cacheable: bool = False
) -> dict[str, Any]:
    """A result with the members that 2026-07-28 requires: its type, the server, and how long it may be kept.

    Nobody but the client may keep it: the adapter in front may show different lists to two clients.
    """
    meta = {SERVER_INFO_KEY: server_info, **value.get("_meta", {})}
    lifetime = {"ttlMs": 0, "cacheScope": "private"} if cacheable else {}
    return {"resultType": "complete", **lifetime, **value, "_meta": meta}


def _refusal(request: LocalRequest, code: int, message: str, data: Any) -> LocalAnswer:
    return refusal(request.id_bytes, code, message, data, request.head.era)


def _speaker(session: LocalSession | None) -> Say:
    """The way to a legacy client outside of its calls. A modern client subscribes to what it wants to hear."""
    if session is None:
        return say_nothing
    return lambda method, params: session.send(notification(method, params))
