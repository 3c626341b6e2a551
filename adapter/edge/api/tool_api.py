"""The HTTP tool API: lists of tools, calls and their validation, over whatever provides the tools.

The order of what may end a call is the specification's: execution disabled, unknown tool, unusable body, refused by
the credential or the hook; then the tool itself. Nothing here knows whether tools are a server's or a host's own.

The hook that a host puts around each call of the tool API: a context manager that refuses by raising.

What it sets in context variables is seen by the call, whether the hook is async or runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from adapter.edge.http.bodies import ClientGone
from adapter.edge.http.request import Request
from adapter.edge.http.response import CallStream, send, wants_stream
from adapter.edge.mcp.ingress import Ingress
from adapter.errors import AdapterError, CatalogueDrifted, InsufficientScope, MessageTooLong, Unauthorized
from adapter.pipeline.validation_stage import SchemaChecks
from adapter.relay.background import in_turns
from adapter.rules.access.host_and_origin_check import is_json_type
from adapter.rules.calls.tool_api import (
    DISABLED,
    NOT_JSON_TYPE,
    UNAUTHORIZED,
    ApiTool,
    Arguments,
    Errors,
    HttpOutcome,
    InvalidJson,
    arguments_of,
    as_plain,
    continued_arguments,
    failure_body,
    input_schema_of,
    is_destructive,
    refused,
    result_body,
    too_large,
    tool_detail,
    tool_list,
    unknown_tool,
    validated_arguments,
    validation,
)
from adapter.rules.results.refusals import Expose, exposed
from adapter.rules.schema.cost import SchemaInvalid
from adapter.wire.envelope import dump

HOOK_PATIENCE = 10.0
"""Seconds that a hook has to let a call in, and again to end after it."""

T = TypeVar("T")

Hook = Callable[[Any], Any]
"""Given the request, returns a context manager, sync or async, or something to await for one."""


class HookRefused(Exception):
    """The hook did not let the call in. The reason is in the log only."""


class AuthHook:
    """``patience`` is in seconds. A hook that is late has refused."""

    def __init__(self, hook: Hook, log: FilteringBoundLogger, patience: float = HOOK_PATIENCE) -> None:
        self._hook = hook
        self._log = log
        self._patience = patience

    async def around(self, request: Any, act: Callable[[], Awaitable[T]]) -> T:
        """Return or raise what ``act`` does, inside the hook's context, which is told of an exception.

        Raises HookRefused when the hook raises before ``act``. What the hook raises afterwards is logged: the call
        has run.
        """
        manager = await self._entered(request)
        try:
            result = await act()
        except BaseException as error:
            await self._leave(manager, error)
            raise
        await self._leave(manager, None)
        return result

    async def _entered(self, request: Any) -> AbstractAsyncContextManager[Any]:
        try:
            async with asyncio.timeout(self._patience):
                manager = self._hook(request)
                if not hasattr(manager, "__enter__") and hasattr(manager, "__await__"):
                    manager = await manager
                # One that is async runs in the caller's task, so what it sets is set for the call.
                entered = manager if hasattr(manager, "__aenter__") else _InThread(manager)
                await entered.__aenter__()
        except (Exception, SystemExit) as error:
            self._log.warning("the auth hook refused a call", exc_info=error)
            raise HookRefused() from error
        return entered

    async def _leave(self, manager: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await manager.__aexit__(
                    type(error) if error else None, error, getattr(error, "__traceback__", None)
                )
        except (Exception, SystemExit) as failure:
            # A generator that does not catch it raises again what was thrown in; that is no failure of the hook.
            if failure is not error:
                self._log.warning("the auth hook failed after a call", exc_info=failure)


class _InThread(AbstractAsyncContextManager[None]):
    """A context manager that may block: both its ends run in a thread, in one copy of the caller's context."""

    def __init__(self, manager: AbstractContextManager[Any]) -> None:
        self._manager = manager
        self._context = contextvars.copy_context()
        self._set: list[tuple[contextvars.ContextVar[Any], contextvars.Token[Any]]] = []

    async def __aenter__(self) -> None:
        entering = self._begun(self._manager.__enter__)
        try:
            await asyncio.shield(entering)
        finally:
            if not entering.done():
                # It may yet come in, into a call that was refused or given up.
                entering.add_done_callback(self._leave_late)
        for variable, value in self._context.items():
            if variable.get(_UNSET) is not value:
                self._set.append((variable, variable.set(value)))

    async def __aexit__(self, *raised: Any) -> None:
        while self._set:
            variable, token = self._set.pop()
            variable.reset(token)
        await asyncio.shield(self._begun(self._manager.__exit__, *raised))

    def _begun(self, step: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(None, self._context.run, _caught, step, arguments)

    def _leave_late(self, entering: asyncio.Future[Any]) -> None:
        if not entering.cancelled() and entering.exception() is None:
            leaving = self._begun(self._manager.__exit__, None, None, None)
            leaving.add_done_callback(lambda done: done.cancelled() or done.exception())


_UNSET = object()


class _Left(Exception):
    """The hook called ``sys.exit``, which in a task would end the whole process."""


def _caught(step: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return step(*arguments)
    except SystemExit as left:
        raise _Left("the hook called sys.exit()") from left


WARNING_FIELD = "X-Adapter-Warning"

Tell = Callable[[dict[str, Any]], Awaitable[None]]
"""Told of progress: ``progress``, ``total``, ``message``."""


class ApiResult(NamedTuple):
    """The outcome of a call, as MCP's CallToolResult, and the trace by which the call is found, if any."""

    result: Mapping[str, Any]
    trace_id: str | None = None

    @classmethod
    def of(cls, content: Sequence[Any], is_error: bool, trace_id: str | None) -> ApiResult:
        """From the three things that a host's handler returns. Raises NotJson."""
        return cls({"content": [as_plain(item) for item in content], "isError": bool(is_error)}, trace_id)


class Provider(Protocol):
    """The source of tools. ``name`` is that of their owner. ``reads``: they were read from JSON, so that they hold
    nothing that JSON does not know.

    Tools are mappings or objects with name, description, annotations and inputSchema.
    """

    name: str
    reads: bool

    def principal(self, request: Request) -> str:
        """The principal of the caller, for taking turns."""

    async def tools(self, request: Request) -> Sequence[Any]:
        """All tools that this caller may see, asked for anew each time."""

    async def tool(self, name: str, request: Request) -> Any | None:
        """One of them, None if there is none of that name."""

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        request: Request,
        tell: Tell | None,
        continued: Mapping[str, Any] | None = None,
    ) -> ApiResult:
        """Run a tool, or go on with one that asked something: ``continued`` has the answers. Whatever it raises becomes
        a failed result; cancelling it cancels the tool.
        """


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """The settings of ``console`` that concern the API; ``max_body`` is in bytes.

    ``expose`` says how much of an exception callers read.
    """

    title: str = "MCP Tool Explorer"
    allow_execute: bool = False
    discovery_auth: bool = False
    invalid_json: InvalidJson = "empty"
    max_body: int = 1 << 20
    expose: Expose = "message"


class ToolApi:
    """Serves the tools of a provider. ``authenticate`` raises Unauthorized for a caller without a good credential; None
    asks for none.

    ``hook`` stands around each call. It is given the request, or the result of ``view`` for the request and the tool's
    name. With ``discovery_auth`` both protect lists too; the credential protects validation in any case.
    """

    def __init__(
        self,
        provider: Provider,
        options: ApiOptions,
        log: FilteringBoundLogger,
        *,
        authenticate: Callable[[Request], object] | None = None,
        hook: AuthHook | None = None,
        view: Callable[[Request, str], Any] | None = None,
        checks: SchemaChecks,
    ) -> None:
        self._provider = provider
        self._checks = checks
        self._options = options
        self._log = log
        self._authenticate = authenticate
        self._hook = hook
        self._view = view
        self._ingress = Ingress(options.max_body)

    def __repr__(self) -> str:
        able = "calls" if self._options.allow_execute else "shows"
        return f"<ToolApi {able} the tools of {self._provider!r}>"

    # --- what is there ----------------------------------------------------------------------------------------

    async def show_tools(self, request: Request, _name: str) -> None:
        """``GET /tools``. Raises ClientGone."""

        async def listing() -> HttpOutcome:
            return await in_turns(tool_list(await self._provider.tools(request)))

        send(request, await self.seen(request, "", listing))

    async def show_tool(self, request: Request, name: str) -> None:
        """``GET /tools/{name}``. Raises ClientGone."""

        async def showing() -> HttpOutcome:
            tool = await self._find(name, request)
            return tool_detail(tool) if tool is not None else unknown_tool(name)

        send(request, await self.seen(request, name, showing))

    async def show_meta(self, request: Request, _name: str) -> None:
        """``GET /meta``."""
        meta = {"title": self._options.title, "allow_execute": self._options.allow_execute}
        send(request, HttpOutcome(200, dump(meta)))

    async def validate(self, request: Request, name: str) -> None:
        """``POST /tools/{name}/validate``: runs nothing, so it works where execution is disabled. Raises ClientGone.

        Tools and callers choose how much work it is, so it needs the same credential as a call.
        """

        async def validating() -> HttpOutcome:
            self.authenticated(request)
            tool = await self._provider.tool(name, request)
            if tool is None:
                return unknown_tool(name)
            raw = await self.body(request)
            if isinstance(raw, HttpOutcome):
                return raw
            given = validated_arguments(raw)
            return (
                given
                if isinstance(given, HttpOutcome)
                else validation(await self._errors(tool, given, request))
            )

        send(request, await self.seen(request, name, validating))

    async def _errors(self, tool: Any, arguments: dict[str, Any], request: Request) -> Errors:
        """The errors of the arguments. A schema that cannot be used is an error too. Raises LimitReached."""
        schema = input_schema_of(tool)
        if schema is None or schema is True or schema == {}:
            return []
        try:
            check = self._checks.known(schema, self._provider.name, read=self._provider.reads)
            return [fault.error for fault in await check.faults(arguments, self._provider.principal(request))]
        except SchemaInvalid as invalid:
            return [{"path": "", "message": str(invalid), "keyword": "schema"}]

    @property
    def allows_execution(self) -> bool:
        """Whether ``console.allow_execute`` is on."""
        return self._options.allow_execute

    def authenticated(self, request: Request) -> None:
        """Raises Unauthorized for a caller without a good credential, where one is asked for."""
        if self._authenticate is not None:
            self._authenticate(request)

    async def seen(
        self, request: Request, name: str, look: Callable[[], Awaitable[HttpOutcome]]
    ) -> HttpOutcome:
        """Return the answer of ``look``; a failure is an answer too."""
        try:
            if not self._options.discovery_auth:
                return await look()
            return await self.admitted(request, name, look)
        except ClientGone:
            raise
        except Exception as error:
            return self.failed_to_look(error)

    async def admitted(
        self, request: Request, name: str, act: Callable[[], Awaitable[HttpOutcome]]
    ) -> HttpOutcome:
        """Return the answer of ``act``, once credential and hook let the caller in. Raises what ``act`` raises."""
        try:
            self.authenticated(request)
        except Unauthorized as error:
            return refusal_of(error)
        if self._hook is None:
            return await act()
        try:
            seen = request if self._view is None else self._view(request, name)
            return await self._hook.around(seen, act)
        except HookRefused:
            return UNAUTHORIZED

    # --- calls ------------------------------------------------------------------------------------------------

    async def call(self, request: Request, name: str, *, going_on: bool = False) -> HttpOutcome:
        """``POST /tools/{name}/call``, or ``/continue`` of one that is ``going_on``. Returns what was answered. Raises
        ClientGone.

        A caller that accepts an event stream gets one: ``progress`` as it comes, then ``result`` with the status and
        the body that a plain answer would have.
        """
        prepared = await self._prepared(request, name, going_on)
        if isinstance(prepared, HttpOutcome):
            send(request, prepared)
            return prepared
        warning = () if prepared.warning is None else ((WARNING_FIELD, prepared.warning),)
        if warning:
            self._log.warning("a tool was called without arguments, for its body is not JSON", tool=name)
        stream = CallStream(request, *warning) if wants_stream(request) else None
        answered = await self._outcome(request, name, prepared, stream)
        if stream is not None and stream.begun:
            await stream.end(answered)
        else:
            send(request, answered, *warning)
        return answered

    async def _prepared(self, request: Request, name: str, going_on: bool) -> Arguments | HttpOutcome:
        """The arguments of a call, if its tool and its body allow it; else its refusal."""
        options = self._options
        if not options.allow_execute:
            return DISABLED
        try:
            if options.discovery_auth:
                # Else whoever may see no tools could find their names by calling them.
                self.authenticated(request)
            tool = await self._provider.tool(name, request)
        except ClientGone:
            raise
        except CatalogueDrifted as error:  # answered as where only the call itself notices it
            return failure_body(str(error))
        except Exception as error:
            return self.failed_to_look(error)
        if tool is None:
            return unknown_tool(name)
        raw = await self.body(request)
        if isinstance(raw, HttpOutcome):
            return raw
        if going_on:
            return continued_arguments(raw)
        return arguments_of(raw, options.invalid_json, destructive=is_destructive(tool))

    async def _outcome(
        self, request: Request, name: str, arguments: Arguments, stream: CallStream | None
    ) -> HttpOutcome:
        """The answer to a call; what the tool raises is its failed result. Raises ClientGone."""

        async def running() -> HttpOutcome:
            if stream is not None:
                stream.begin()
            continued = arguments.continued
            result = await self._provider.call(name, arguments.value, request, stream, continued)
            return result_body(result.result, result.trace_id)

        try:
            return await self.admitted(request, name, running)
        except ClientGone:
            raise
        except AdapterError as error:
            self._log.info("a call over HTTP failed", tool=name, why=error.code)
            return failure_body(str(error))
        except Exception as error:
            self._log.exception("a tool called over HTTP raised", tool=name)
            return failure_body(exposed(error, expose=self._options.expose))

    # --- parts ------------------------------------------------------------------------------------------------

    async def _find(self, name: str, request: Request) -> ApiTool | None:
        tool = await self._provider.tool(name, request)
        return None if tool is None else ApiTool.of(tool)

    async def body(self, request: Request) -> bytes | HttpOutcome:
        """The body, or the refusal of one that another site's page could send, or that is too large."""
        headers = request.headers
        if headers.get("Origin") is not None and not is_json_type(headers.get("Content-Type")):
            return NOT_JSON_TYPE
        try:
            body, _ = self._ingress.plain(await self._ingress.read_body(request), request)
        except MessageTooLong:
            return too_large(self._options.max_body)
        except AdapterError as error:
            return refused(error.http, str(error))
        return body

    def failed_to_look(self, error: Exception) -> HttpOutcome:
        """The answer where a list, or anything else that is read, failed."""
        if isinstance(error, Unauthorized):
            return refusal_of(error)
        if isinstance(error, AdapterError):
            # Drift is nobody's failure, and a success of JSON-RPC: the tools are not those the caller agreed to.
            status = 409 if isinstance(error, CatalogueDrifted) else error.http
            return refused(status if status >= 400 else 500, str(error))
        self._log.exception("the tools could not be listed")
        return refused(500, exposed(error, expose=self._options.expose))


def refusal_of(error: Unauthorized) -> HttpOutcome:
    """The answer to a caller whose credential does not do."""
    answered = refused(error.http, str(error)) if error.http == InsufficientScope.http else UNAUTHORIZED
    return answered._replace(challenge=error.challenge)
