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
from adapter.wire.envelope import INVALID_PARAMS, Envelope, dump, error_response, parse, read_envelope
from adapter.wire.eras import encode_mirror
from adapter.wire.piecewise import one_piece
from adapter.wire.spans import Insert, edit

KEPT = 4
"""Catalogues whose index is kept; most servers have one for all."""

ReadTools = Callable[[Call], Awaitable[Offered]]


class CodeMode:
    """The three tools of one server. ``own`` are the adapter's other tools, which are called by their names.

    ``offered`` and ``listed`` read the tools that a scope may use; see ToolGuard.
    """

    def __init__(
        self, names: CodeModeNames, offered: ReadTools, listed: ReadTools, own: Sequence[dict[str, Any]]
    ) -> None:
        self._names = names
        self._offered = offered
        self._listed = listed
        self._shown = (*own, *definitions(names))
        self._own = {tool["name"]: dump(tool) for tool in self._shown}
        self._indexes = SingleFlight[str, Index](LastUsed(KEPT))

    def entries(self) -> list[StageEntry]:
        """The stages of the three tools and of their list."""
        return [
            StageEntry("tools/list", "own", _Answering(self._list)),
            StageEntry("tools/call", "own", _Answering(self._search), self._names.search),
            StageEntry("tools/call", "own", _Answering(self._describe), self._names.schema),
            StageEntry("tools/call", "own", _Answering(self._explain), self._names.call),
        ]

    def skips(self, scope_id: str, name: str | None) -> bool:  # noqa: ARG002 - a gate; every scope has these tools
        """True for the adapter's own tools, which are called by their names."""
        return name in self._own and name != self._names.call

    async def admit(self, call: Call) -> None:
        """Put the call that is meant in the place of one that stands for it.

        Raises ToolUnknown for a tool that is called by its name.
        """
        if call.envelope.name != self._names.call:
            raise ToolUnknown(self._names.hint)
        try:
            request = unfold(call.envelope, self._names)
        except UnusableCall:
            # The call stays as it is, and its tool answers with the reason.
            return
        inner = read_envelope(request)
        assert isinstance(inner, Envelope) and inner.name is not None, "the call has a name"
        if call.modern:
            call.headers = await self._headers(call, inner)
        call.envelope, call.request = inner, request

    async def _headers(self, call: Call, inner: Envelope) -> list[tuple[str, str]]:
        """The headers of a modern call that mirror the unfolded one."""
        fields = [field for field in call.headers if not field[0].lower().startswith((PREFIX, "mcp-name"))]
        return fields + mirrors_of(inner, (await self._offered(call)).definitions.get(inner.name or ""))

    # --- what the tools answer --------------------------------------------------------------------------------

    async def _list(self, call: Call) -> bytes:
        return own_page(call.envelope.with_body(call.request), self._shown, modern=call.modern)

    async def _search(self, call: Call) -> bytes:
        query = search_query(call.envelope)
        offered = await self._listed(call)
        index = await self._index(offered)
        allowed = offered.allowed - self._own.keys()
        hits, total = await in_turns(index.search(query.words, query.limit, allowed))
        text, data = search_answer([_as_offered(hit, offered) for hit in hits], total, self._names)
        return tool_result(call.envelope.id_bytes, text, data, modern=call.modern)

    async def _describe(self, call: Call) -> bytes:
        name = described_name(call.envelope, self._names)
        definition = self._own.get(name)
        if definition is None:
            offered = await self._listed(call)
            size = len(offered.definitions.get(name, b""))
            definition = await in_turns(one_piece(partial(offered.definition, name), size))
        return await described(call.envelope, definition, self._names, modern=call.modern)

    async def _explain(self, call: Call) -> bytes:
        """Raise the reason why a call was not unfolded: only such a call still has this tool's name."""
        unfold(call.envelope, self._names)
        raise AssertionError("a call that can be unfolded is")

    async def _index(self, offered: Offered) -> Index:
        """The index of a catalogue, made once: ten thousand tools take about a second."""
        return await self._indexes.get(offered.digest, lambda: in_turns(index_of(offered.definitions)))


def own_page(envelope: Envelope, tools: Sequence[dict[str, Any]], *, modern: bool) -> bytes:
    """The response to a request for the list of these tools."""
    if asked_cursor(envelope.body) is not None:
        why = "This list has only one page, so it has no such cursor."
        return error_response(envelope.id_bytes, INVALID_PARAMS, why)
    return own_list(envelope.id_bytes, tools, modern=modern)


def mirrors_of(call: Envelope, definition: bytes | None) -> list[tuple[str, str]]:
    """The headers that mirror a modern call of a tool with that definition; the name alone where there is none."""
    fields = [("Mcp-Name", encode_mirror(call.name or ""))]
    if definition is not None:
        arguments = parse(call.body)["params"].get("arguments")
        fields += mirrored(parse(definition).get("inputSchema"), arguments)
    return fields


async def described(
    envelope: Envelope, definition: bytes | None, names: CodeModeNames, *, modern: bool
) -> bytes:
    """The response that has a tool's definition. Raises UnusableCall where there is none."""
    if definition is None:
        name = shown(described_name(envelope, names), 100)
        raise UnusableCall(f"The tool {name} does not exist; {names.search} finds tools.")
    work = partial(_described, envelope, definition, modern)
    return await in_turns(one_piece(work, len(definition)))


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


class _Answering:
    """A stage that answers by itself. The model gets an unusable call as the tool's failure."""

    def __init__(self, respond: Callable[[Call], Awaitable[bytes]]) -> None:
        self._respond = respond

    async def ask(self, call: Call) -> bytes | None:
        try:
            return await self._respond(call)
        except UnusableCall as error:
            return tool_result(call.envelope.id_bytes, str(error), None, modern=call.modern, is_error=True)

    async def answer(self, call: Call, response: bytes) -> bytes:  # noqa: ARG002 - a stage; this one only asks
        return response
