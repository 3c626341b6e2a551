"""The methods of a hosted server: what is answered to each, in both eras. It knows messages and no transport."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, HeaderMismatch, InternalError
from adapter.hosted import answers
from adapter.hosted.answers import INVALID_PARAMS, METHOD_NOT_FOUND, HostedAnswer, RpcRefused
from adapter.hosted.calls import ProgressToken, RunningCall
from adapter.hosted.sessions import HostedSession
from adapter.hosted.streams import EventStream, Subscriptions
from adapter.hosted.tools import CallLimit, HostedTool, ToolCall
from adapter.pipeline.call import Say, say_nothing
from adapter.pipeline.failures import CallRefused
from adapter.rules.access.principals import NOBODY, Caller
from adapter.rules.calls.param_headers import annotated, check_parameters
from adapter.upstream.port import Fields
from adapter.wire.envelope import Envelope, dump
from adapter.wire.eras import MODERN_VERSIONS, Era, check_mirrors
from adapter.wire.names import VERSION_KEY

_TOOLS = {"tools": {"listChanged": True}}


@dataclass(slots=True)
class Incoming:
    """One request as it came. ``streams`` says that its answer may be an event stream."""

    envelope: Envelope
    params: Any
    headers: Fields
    era: Era
    session: HostedSession | None
    streams: bool
    caller: Caller = NOBODY

    @property
    def id_bytes(self) -> bytes:
        number = self.envelope.id
        return b"%d" % number if type(number) is int else self.envelope.id_bytes

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.params.get("_meta") if isinstance(self.params, dict) else None
        return meta if isinstance(meta, dict) else {}

    @property
    def progress_token(self) -> ProgressToken | None:
        """The token under which the client wants progress, None where it cannot be told any."""
        token = self.meta.get("progressToken") if self.streams else None
        return token if isinstance(token, str | int | float) and not isinstance(token, bool) else None


@dataclass(frozen=True, slots=True)
class Served:
    """The identity of the server, and the way it answers."""

    name: str
    version: str
    instructions: str | None
    unknown_tool_code: int
    page: int

    @property
    def info(self) -> dict[str, str]:
        return {"name": self.name, "version": self.version}

    def introduced(self, value: dict[str, Any]) -> dict[str, Any]:
        """``value`` with the capabilities and, if there are any, the instructions."""
        said = {**value, "capabilities": _TOOLS}
        return said if self.instructions is None else {**said, "instructions": self.instructions}


class Opened(NamedTuple):
    """The values that a session was opened with."""

    version: str
    capabilities: Mapping[str, Any]


class Methods:
    """``call_over`` is told of each call whose tool has ended."""

    def __init__(
        self, served: Served, log: FilteringBoundLogger, call_over: Callable[[RunningCall], None]
    ) -> None:
        self.served = served
        self.subscriptions = Subscriptions()
        self._log = log
        self._call_over = call_over
        self._tools: dict[str, HostedTool] = {}
        self._definitions: list[Mapping[str, Any]] = []

    def offer(self, tools: Iterable[HostedTool]) -> bool:
        """Serve these tools. Returns whether their definitions differ from what was served before.

        Raises ValueError for two of one name.
        """
        offered = list(tools)
        named = {tool.name: tool for tool in offered}
        if len(named) < len(offered):
            raise ValueError("two tools of a hosted server have one name")
        self._tools = named
        definitions = [tool.definition for tool in offered]
        before, self._definitions = self._definitions, definitions
        return dump(before) != dump(definitions)

    def initialize(self, incoming: Incoming) -> tuple[HostedAnswer, Opened | None]:
        """Negotiate a legacy session: the version asked for where it is served, else the latest."""
        params = incoming.params if isinstance(incoming.params, dict) else {}
        wanted, capabilities = params.get("protocolVersion"), params.get("capabilities")
        if not isinstance(wanted, str):
            message = "initialize requires a protocolVersion."
            return answers.refusal(incoming.id_bytes, INVALID_PARAMS, message, None, Era.LEGACY), None
        version = wanted if wanted in answers.LEGACY_VERSIONS else answers.LEGACY_VERSIONS[-1]
        value = self.served.introduced({"protocolVersion": version, "serverInfo": self.served.info})
        opened = Opened(version, capabilities if isinstance(capabilities, dict) else {})
        return HostedAnswer(200, answers.result(incoming.id_bytes, value)), opened

    def answer(self, incoming: Incoming) -> HostedAnswer | EventStream | RunningCall:
        """The answer to one request, or the call that will give it."""
        try:
            if incoming.era is Era.MODERN:
                _check_modern(incoming)
            method = incoming.envelope.method
            if method == "tools/call":
                return self._call(incoming)
            if method == "tools/list":
                return self._said(incoming, self._listed(incoming), cacheable=True)
            if incoming.era is Era.LEGACY and method == "ping":
                return self._said(incoming, {})
            if incoming.era is Era.MODERN and method == "server/discover":
                value = self.served.introduced({"supportedVersions": list(MODERN_VERSIONS)})
                return self._said(incoming, value, cacheable=True)
            if incoming.era is Era.MODERN and method == "subscriptions/listen":
                return self._subscribe(incoming)
            raise RpcRefused(METHOD_NOT_FOUND, f"Method not found: {method}")
        except (RpcRefused, CallRefused) as refused:
            return answers.refusal(incoming.id_bytes, refused.code, str(refused), refused.data, incoming.era)
        except HeaderMismatch as error:
            return answers.refusal(incoming.id_bytes, error.rpc, str(error), error.data, incoming.era)

    def _said(self, incoming: Incoming, value: dict[str, Any], *, cacheable: bool = False) -> HostedAnswer:
        if incoming.era is Era.MODERN:
            value = answers.modern(value, self.served.info, cacheable=cacheable)
        return HostedAnswer(200, answers.result(incoming.id_bytes, value))

    # --- tools ------------------------------------------------------------------------------------------------

    def _listed(self, incoming: Incoming) -> dict[str, Any]:
        cursor = incoming.params.get("cursor") if isinstance(incoming.params, dict) else None
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

    def _call(self, incoming: Incoming) -> RunningCall:
        params = incoming.params if isinstance(incoming.params, dict) else {}
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise RpcRefused(INVALID_PARAMS, "tools/call requires the name of a tool.")
        tool = self._tools.get(name)
        if tool is None:
            raise RpcRefused(self.served.unknown_tool_code, f"Unknown tool: {name}")
        arguments = {} if arguments is None else arguments
        if not isinstance(arguments, dict):
            raise RpcRefused(INVALID_PARAMS, "The arguments of a tool must be an object.")
        if incoming.era is Era.MODERN:
            check_parameters(dict(annotated(tool.definition.get("inputSchema"))), arguments, incoming.headers)
        running = RunningCall(incoming.progress_token, self._finisher(incoming))
        if incoming.session is not None and incoming.envelope.id is not None:
            incoming.session.calls[incoming.envelope.id] = running
        call = ToolCall(
            tool=name,
            arguments=arguments,
            era=incoming.era,
            progress=running.progress,
            headers=incoming.headers,
            meta=incoming.meta,
            capabilities=_capabilities(incoming),
            session=incoming.session.id if incoming.session else None,
            caller=incoming.caller,
            say=_speaker(incoming.session),
        )
        limit, work = tool.limit, partial(self._run, tool, call, incoming)
        if limit is None:
            running.begin(work)
        else:
            running.begin(work, limit.seconds, partial(self._overdue, limit, call, incoming))
        return running

    def _overdue(self, limit: CallLimit, call: ToolCall, incoming: Incoming) -> HostedAnswer | None:
        try:
            answer = limit.overdue(call)
        except CallRefused as refused:
            return answers.refusal(incoming.id_bytes, refused.code, str(refused), refused.data, incoming.era)
        return None if answer is None else self._said(incoming, answer.as_result())

    async def _run(self, tool: HostedTool, call: ToolCall, incoming: Incoming) -> HostedAnswer:
        try:
            answer = await tool.run(call)
            return self._said(incoming, answer.as_result())
        except CallRefused as refused:
            code, message, data = refused.code, str(refused), refused.data
        except AdapterError as error:
            code, message, data = error.rpc, str(error), error.data
        except Exception:
            # Whatever a tool raises, its client gets an answer; which part of it may be told is not known here.
            self._log.exception("a hosted tool failed unexpectedly", server=self.served.name, tool=tool.name)
            code, message, data = answers.INTERNAL_ERROR, InternalError.hint, None
        return answers.refusal(incoming.id_bytes, code, message, data, incoming.era)

    def _finisher(self, incoming: Incoming) -> Callable[[RunningCall], None]:
        session, number = incoming.session, incoming.envelope.id

        def finished(call: RunningCall) -> None:
            # A client that used an id twice has only itself to blame, but must not unhook its other call.
            if session is not None and number is not None and session.calls.get(number) is call:
                del session.calls[number]
            self._call_over(call)

        return finished

    def _subscribe(self, incoming: Incoming) -> EventStream:
        wanted = incoming.params.get("notifications")
        if not isinstance(wanted, dict):
            raise RpcRefused(INVALID_PARAMS, "subscriptions/listen requires the notifications to listen for.")
        return self.subscriptions.open(incoming.id_bytes, incoming.envelope.id, wanted)


def _check_modern(incoming: Incoming) -> None:
    """Check for what every request of MCP 2026-07-28 carries. Raises Refused, HeaderMismatch."""
    missing = [key for key in (VERSION_KEY, answers.CAPABILITIES_KEY) if key not in incoming.meta]
    if missing:
        raise RpcRefused(INVALID_PARAMS, f"params._meta is missing {' and '.join(missing)}.")
    version = incoming.meta[VERSION_KEY]
    check_mirrors(
        incoming.envelope,
        version=incoming.headers.get("mcp-protocol-version"),
        method=incoming.headers.get("mcp-method"),
        name=incoming.headers.get("mcp-name"),
    )
    if version not in MODERN_VERSIONS:
        data = {"supported": list(MODERN_VERSIONS), "requested": version}
        raise RpcRefused(answers.UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def _speaker(session: HostedSession | None) -> Say:
    """What tells a legacy client something outside of its calls; a modern one has asked for what it wants to hear."""
    if session is None:
        return say_nothing
    return lambda method, params: session.say(answers.notification(method, params))


def _capabilities(incoming: Incoming) -> Mapping[str, Any]:
    if incoming.session is not None:
        return incoming.session.capabilities
    declared = incoming.meta.get(answers.CAPABILITIES_KEY)
    return declared if isinstance(declared, dict) else {}
