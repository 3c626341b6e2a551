"""Code mode: a client sees three tools to search, to describe and to call all others. No code is run.

A call through the third tool is unfolded before the guard and the plan see it, so that the rules of the called tool
hold. A scope does not find tools that it may not use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from adapter.errors import ToolUnknown
from adapter.relay.background import SingleFlight, in_turns
from adapter.relay.param_headers import PREFIX, mirrored
from adapter.relay.stages import Call, StageEntry, asked_cursor
from adapter.relay.tools.catalogue_reader import Offered
from adapter.relay.tools.tool_lists import own_list
from adapter.rules.last_used import LastUsed
from adapter.rules.results.tool_results import tool_result
from adapter.rules.text.unicode import shown
from adapter.rules.tools.code_mode import (
    CodeModeNames,
    UnusableCall,
    definitions,
    described_name,
    search_answer,
    search_query,
    unfold,
)
from adapter.rules.tools.search import Index, SearchHit, index_of, one_line
from adapter.upstream.port import Headers
from adapter.wire.envelope import INVALID_PARAMS, Envelope, dump, error_response, parse, read_envelope
from adapter.wire.eras import encode_mirror
from adapter.wire.piecewise import one_piece
from adapter.wire.spans import Insert, edit

KEPT = 4
"""Catalogues whose index is kept; most servers have one for all."""

ReadTools = Callable[[Call], Awaitable[Offered]]
ReadOffered = Callable[[], Awaitable[Offered]]


class CodeModeTools:
    """The three tools and what they answer. ``own`` are the adapter's other tools, which are called by their names."""

    def __init__(self, names: CodeModeNames, own: Sequence[dict[str, Any]] = ()) -> None:
        self.names = names
        self._shown = (*own, *definitions(names))
        self.own = {tool["name"]: dump(tool) for tool in self._shown}
        self._indexes = SingleFlight[str, Index](LastUsed(KEPT))

    def page(self, envelope: Envelope, *, modern: bool) -> bytes:
        """The response to a request for the list of tools."""
        if asked_cursor(envelope.body) is not None:
            why = "This list has only one page, so it has no such cursor."
            return error_response(envelope.id_bytes, INVALID_PARAMS, why)
        return own_list(envelope.id_bytes, self._shown, modern=modern)

    async def answer(self, envelope: Envelope, read: ReadOffered, *, modern: bool) -> bytes:
        """The response to a call of one of the three; ``read`` reads what the caller may use. The model gets an
        unusable call as the tool's failure.
        """
        try:
            if envelope.name == self.names.search:
                return await self._search(envelope, read, modern)
            if envelope.name == self.names.schema:
                return await self._describe(envelope, read, modern)
            # Only a call that was not unfolded still has the third name: this says why.
            self.unfolded(envelope)
            raise AssertionError("a call that can be unfolded is")
        except UnusableCall as error:
            return tool_result(envelope.id_bytes, str(error), None, modern=modern, is_error=True)

    def unfolded(self, envelope: Envelope) -> Envelope:
        """The call that a call through the third tool stands for. Raises UnusableCall."""
        inner = read_envelope(unfold(envelope, self.names))
        assert isinstance(inner, Envelope) and inner.name is not None, "the call has a name"
        inner.trace = envelope.trace
        return inner

    async def _search(self, envelope: Envelope, read: ReadOffered, modern: bool) -> bytes:
        query = search_query(envelope)
        offered = await read()
        # Made once: ten thousand tools take about a second.
        index = await self._indexes.get(offered.digest, lambda: in_turns(index_of(offered.definitions)))
        allowed = offered.allowed - self.own.keys()
        hits, total = await in_turns(index.search(query.words, query.limit, allowed))
        text, data = search_answer([_as_offered(hit, offered) for hit in hits], total, self.names)
        return tool_result(envelope.id_bytes, text, data, modern=modern)

    async def _describe(self, envelope: Envelope, read: ReadOffered, modern: bool) -> bytes:
        name = described_name(envelope, self.names)
        definition = self.own.get(name)
        if definition is None:
            offered = await read()
            size = len(offered.definitions.get(name, b""))
            definition = await in_turns(one_piece(partial(offered.definition, name), size))
        if definition is None:
            raise UnusableCall(
                f"The tool {shown(name, 100)} does not exist; {self.names.search} finds tools."
            )
        return await in_turns(one_piece(partial(_described, envelope, definition, modern), len(definition)))


class CodeMode:
    """The three tools of one server. ``own`` are the adapter's other tools, which are called by their names.

    ``offered`` and ``listed`` read the tools that a scope may use; see ToolGuard.
    """

    def __init__(
        self, names: CodeModeNames, offered: ReadTools, listed: ReadTools, own: Sequence[dict[str, Any]]
    ) -> None:
        self._offered = offered
        self._listed = listed
        self._tools = CodeModeTools(names, own)

    def entries(self) -> list[StageEntry]:
        """The stages of the three tools and of their list."""
        names = self._tools.names
        return [
            StageEntry("tools/list", "own", self),
            *(
                StageEntry("tools/call", "own", self, each)
                for each in (names.search, names.schema, names.call)
            ),
        ]

    def skips(self, scope_id: str, name: str | None) -> bool:  # noqa: ARG002 - a gate; every scope has these tools
        """True for the adapter's own tools, which are called by their names."""
        return name in self._tools.own and name != self._tools.names.call

    async def admit(self, call: Call) -> None:
        """Put the call that is meant in the place of one that stands for it.

        Raises ToolUnknown for a tool that is called by its name.
        """
        if call.envelope.name != self._tools.names.call:
            raise ToolUnknown(self._tools.names.hint)
        try:
            inner = self._tools.unfolded(call.envelope)
        except UnusableCall:
            # The call stays as it is, and its tool answers with the reason.
            return
        if call.modern:
            definitions = (await self._offered(call)).definitions
            call.headers = headers_of(inner, definitions.get(inner.name or ""), call.headers)
        call.envelope, call.request = inner, inner.body

    async def ask(self, call: Call) -> bytes | None:
        """See Stage: all of them answer by themselves."""
        if call.envelope.method == "tools/list":
            return self._tools.page(call.envelope.with_body(call.request), modern=call.modern)
        return await self._tools.answer(call.envelope, partial(self._listed, call), modern=call.modern)

    async def answer(self, call: Call, response: bytes) -> bytes:  # noqa: ARG002 - a stage; this one only asks
        """See Stage."""
        return response


def without_mirrors(headers: Headers) -> list[tuple[str, str]]:
    """The headers without those that mirror a call, which another one has taken the place of."""
    return [field for field in headers if not field[0].lower().startswith((PREFIX, "mcp-name"))]


def headers_of(call: Envelope, definition: bytes | None, headers: Headers) -> list[tuple[str, str]]:
    """The headers of a modern request as they mirror the call that it stands for, of a tool with that definition; the
    name alone where there is none.
    """
    fields = without_mirrors(headers)
    fields.append(("Mcp-Name", encode_mirror(call.name or "")))
    if definition is not None:
        arguments = parse(call.body)["params"].get("arguments")
        fields += mirrored(parse(definition).get("inputSchema"), arguments)
    return fields


def _described(envelope: Envelope, definition: bytes, modern: bool) -> bytes:
    response = tool_result(envelope.id_bytes, definition.decode("utf-8"), None, modern=modern)
    # The definition keeps its bytes: the adapter does not spell an upstream's schema anew.
    return edit(response, [Insert(("result", "structuredContent"), definition)])


def _as_offered(found: SearchHit, offered: Offered) -> SearchHit:
    """The hit with the warning, if the scope is to be warned of the tool."""
    if not offered.warns_of(found.name):
        return found
    definition = parse(offered.definition(found.name) or b"{}")
    return found._replace(line=one_line(definition.get("description", "")))
