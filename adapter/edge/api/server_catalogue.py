"""Prompts and resources of one server for the console, the answers of people to what it asks, and its news.

Everything goes through the caller's own session, so callers see what MCP clients with their credential would.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.edge.api.server_tools import Callers, preview_of, questions_of
from adapter.edge.api.tool_api import ToolApi, refusal_of
from adapter.edge.http.request import Request, query_of
from adapter.edge.http.response import CallStream, begin_stream, send
from adapter.errors import AdapterError, LimitReached, Unauthorized, UpstreamBroken
from adapter.relay.background import in_turns
from adapter.relay.http_api.callers import Who
from adapter.relay.http_api.dialogue import ReplyAddress
from adapter.relay.http_api.sessions import HttpSessions, ToolRefused
from adapter.rules.calls.tool_api import (
    DISABLED,
    HttpOutcome,
    continued_in,
    json_object,
    refused,
    value_body,
    value_list,
)
from adapter.wire.envelope import METHOD_NOT_FOUND

_NOT_THERE = (-32002, -32602, METHOD_NOT_FOUND)
"""What servers answer who have not this prompt or resource, or none at all."""

_ACTIONS = ("accept", "decline", "cancel")
_REFERENCES = {"ref/prompt": "name", "ref/resource": "uri"}

LISTED = {
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}


CallerFiles = Callable[[str, str | None], Awaitable[dict[str, Any]]]
"""The files that the tools of one server take from a principal, in the session of a key: ``limit``, the bytes that one
may have, and ``files``, newest first. Raises StoreUnavailable.
"""

_STREAMED = value_body({})
"""Stands for an answer that was sent as a stream."""


class Asked(NamedTuple):
    """A request to the server."""

    method: str
    params: dict[str, Any]


HEARTBEAT = 15.0
"""Seconds after which a stream without news says that it is still there."""

LONGEST = 600.0
"""Seconds after which a stream ends: the next one needs a credential that is still good."""

MOST, MOST_OF_ONE = 200, 16
"""Streams that are open at once, and those of one principal."""


class NewsStreams:
    """Keeps the streams of all servers. ``heartbeat`` and ``longest`` are in seconds."""

    def __init__(self, heartbeat: float = HEARTBEAT, longest: float = LONGEST) -> None:
        self._heartbeat = heartbeat
        self._longest = longest
        self._open: Counter[str] = Counter()
        self._closed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<NewsStreams: {self._open.total()}>"

    def close(self) -> None:
        """End all streams, because the adapter stops."""
        self._closed.set()

    async def serve(self, request: Request, sessions: HttpSessions, who: Who) -> None:
        """Send the news of the caller's session as events until the client goes. Raises ClientGone, LimitReached."""
        with self._counted(who.principal):
            stream = CallStream(request)
            begin_stream(request)
            await request.reply.write(b": news\n\n")
            listening = asyncio.ensure_future(sessions.listen(who, stream.event))
            closed = asyncio.ensure_future(self._closed.wait())
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._longest):
                        await self._beat(request, listening, closed)
            finally:
                listening.cancel()
                closed.cancel()
                await asyncio.gather(listening, closed, return_exceptions=True)
            request.reply.end()

    async def _beat(self, request: Request, *ends: asyncio.Future[Any]) -> None:
        """Say that the stream is there until one of these is done."""
        while True:
            done, _ = await asyncio.wait(ends, timeout=self._heartbeat, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
            await request.reply.write(b": still here\n\n")

    @contextmanager
    def _counted(self, principal: str) -> Iterator[None]:
        if self._open.total() >= MOST or self._open[principal] >= MOST_OF_ONE:
            raise LimitReached("Too many streams of news are open; close a tab.", retry_after=self._heartbeat)
        self._open[principal] += 1
        try:
            yield
        finally:
            self._open[principal] -= 1
            if not self._open[principal]:
                del self._open[principal]


@dataclass(eq=False, repr=False, slots=True)
class ServerCatalogue:
    """Serves what a server has beside its ``tools``, whose API lets callers in."""

    tools: ToolApi
    sessions: HttpSessions
    callers: Callers
    news: NewsStreams
    files: CallerFiles | None = None

    # --- lists ------------------------------------------------------------------------------------------------

    async def show_list(self, request: Request, _name: str, *, kind: str) -> None:
        """``GET``: all prompts, resources or templates (a key of LISTED). Raises ClientGone."""

        async def listing() -> HttpOutcome:
            try:
                found = await self.sessions.listed(self.callers.of(request), LISTED[kind])
            except ToolRefused as error:
                raise UpstreamBroken(f"The upstream server does not list its {kind}: {error}") from error
            return await in_turns(value_list(found))

        await self._shown(request, listing)

    async def show_files(self, request: Request, _name: str) -> None:
        """``GET /files``: the files that this caller can give to the server's tools. Raises ClientGone."""

        async def showing() -> HttpOutcome:
            who = self.callers.of(request)
            if self.files is None:
                return value_body({"limit": None, "files": []})
            return value_body(await self.files(who.principal, await self.sessions.key_of(who)))

        await self._shown(request, showing)

    async def _shown(
        self, request: Request, show: Callable[[], Awaitable[HttpOutcome]], name: str = ""
    ) -> None:
        """Answer a caller who has a token where tokens are asked for, unlike lists of tools, which all may read."""
        try:
            answered = await self.tools.admitted(request, name, show)
        except AdapterError as error:
            answered = self.tools.failed_to_look(error)
        if answered is not _STREAMED:
            send(request, answered)

    async def show_resource(self, request: Request, _name: str) -> None:
        """``GET /resources?uri=…``: the bytes of a resource. Raises ClientGone."""
        uri = query_of(request).get("uri")
        if not uri:
            send(request, refused(400, "Name the resource: ?uri=…"))
            return
        try:
            self.callers.authenticate(request)
            contents = await self.sessions.read_resource(self.callers.of(request), uri)
        except ToolRefused as error:
            status = 404 if error.code in _NOT_THERE else 502
            send(request, refused(status, f"The resource cannot be read: {error}"))
        except Unauthorized as error:
            send(request, refusal_of(error))
        except AdapterError as error:
            send(request, refused(max(error.http, 400), str(error)))
        else:
            preview = preview_of(contents, uri)
            if preview is None:
                send(request, refused(404, "The resource has no contents."))
            else:
                request.reply.send(200, preview.fields(), preview.body)

    # --- requests ---------------------------------------------------------------------------------------------

    async def ask(
        self,
        request: Request,
        _name: str,
        *,
        read: Callable[[Mapping[str, Any]], Asked | None],
        execution: bool = True,
    ) -> None:
        """``POST`` of what ``read`` finds in the body: the server's answer, as it came. Raises ClientGone.

        ``execution``: it is refused where calls are.
        """

        async def asking(body: dict[str, Any]) -> HttpOutcome:
            asked, continued = read(body), continued_in(body)
            if asked is None:
                return refused(400, "The body has not the members that this request needs.")
            if isinstance(continued, HttpOutcome):
                return continued
            who = self.callers.of(request)
            try:
                found = await self.sessions.request(who, asked.method, {**asked.params, **continued})
            except ToolRefused as error:
                questions = questions_of(error) if who.answers else None
                if questions is not None:
                    return value_body({"_meta": questions})
                return refused(404 if error.code in _NOT_THERE else 502, f"The server refused: {error}")
            return value_body(found)

        await self._answered(request, asking, execution=execution)

    async def answer(self, request: Request, name: str) -> None:
        """``POST /tools/{name}/answer``: what a person says to a question of a tool that runs. Raises ClientGone."""

        async def answering(body: dict[str, Any]) -> HttpOutcome:
            result = body.get("result")
            if not isinstance(result, dict) or not _is_answer(result):
                return refused(400, "result must have an action (accept, decline or cancel), and content.")
            address = ReplyAddress.read(body.get("reply_to"))
            await self.sessions.answer(self.callers.of(request), address, result)
            return value_body({"answered": True})

        await self._answered(request, answering, execution=True, name=name)

    async def _answered(
        self,
        request: Request,
        act: Callable[[dict[str, Any]], Awaitable[HttpOutcome]],
        *,
        execution: bool,
        name: str = "",
    ) -> None:
        """Answer with what comes of the body, once the caller is let in as for a call."""

        async def acting() -> HttpOutcome:
            raw = await self.tools.body(request)
            body = raw if isinstance(raw, HttpOutcome) else json_object(raw)
            return body if isinstance(body, HttpOutcome) else await act(body)

        if execution and not self.tools.allows_execution:
            send(request, DISABLED)
            return
        await self._shown(request, acting, name)

    # --- news -------------------------------------------------------------------------------------------------

    async def show_events(self, request: Request, _name: str) -> None:
        """``GET /events``: what the server says outside of calls, until the client goes. Raises ClientGone."""

        async def streaming() -> HttpOutcome:
            who = self.callers.of(request)
            await self.news.serve(request, self.sessions, who)
            return _STREAMED

        await self._shown(request, streaming)


def prompt(body: Mapping[str, Any]) -> Asked | None:
    """``/prompts/get``: the messages of a prompt."""
    name, arguments = body.get("name"), body.get("arguments", {})
    if not isinstance(name, str) or not _are_texts(arguments):
        return None
    return Asked("prompts/get", {"name": name, "arguments": arguments})


def resource(body: Mapping[str, Any]) -> Asked | None:
    """``/resources/read``: the contents of a resource."""
    uri = body.get("uri")
    return Asked("resources/read", {"uri": uri}) if isinstance(uri, str) and uri else None


def completion(body: Mapping[str, Any]) -> Asked | None:
    """``/complete``: values for an argument of a prompt or a template."""
    ref, argument, given = body.get("ref"), body.get("argument"), body.get("arguments", {})
    if not isinstance(ref, dict) or not isinstance(argument, dict) or not _are_texts(given):
        return None
    kind = ref.get("type")
    key = _REFERENCES.get(kind) if isinstance(kind, str) else None
    if key is None or not isinstance(ref.get(key), str):
        return None
    if not isinstance(argument.get("name"), str) or not isinstance(argument.get("value"), str):
        return None
    params: dict[str, Any] = {
        "ref": {"type": kind, key: ref[key]},
        "argument": {"name": argument["name"], "value": argument["value"]},
    }
    if given:
        params["context"] = {"arguments": given}
    return Asked("completion/complete", params)


def _are_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def _is_answer(result: Mapping[str, Any]) -> bool:
    """Tell whether it is an ElicitResult (MCP 2025-11-25)."""
    if result.get("action") not in _ACTIONS or not result.keys() <= {"action", "content"}:
        return False
    content = result.get("content", {})
    return isinstance(content, dict) and all(_is_field(each) for each in content.values())


def _is_field(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, str | int | float)
