"""Code mode of a merged mount: three tools to search, to describe and to call those of all its servers."""

from __future__ import annotations

from collections.abc import Mapping

from adapter.errors import ToolUnknown
from adapter.relay.background import SingleFlight, in_turns
from adapter.relay.exchange import ClientRequest, forwardable
from adapter.relay.mounts.lists import MountLists
from adapter.relay.mounts.sessions import MountSession
from adapter.relay.param_headers import PREFIX
from adapter.relay.tools.code_mode import KEPT, described, mirrors_of, own_page
from adapter.rules.last_used import LastUsed
from adapter.rules.mounts.lists import MISSING, TOOLS, MergedList, stored_entries
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
from adapter.rules.tools.search import Index, index_of
from adapter.wire.envelope import Envelope, dump, read_envelope
from adapter.wire.eras import MODERN
from adapter.wire.spans import Insert, edit

_OF_CALL = frozenset({"content-encoding", "mcp-name"})


MountCatalogue = tuple[Mapping[str, bytes], Index]
"""The definitions of all tools, by the names that clients use, and their index."""


class MountCodeMode:
    """The three tools of one mount, over its ``lists``."""

    def __init__(self, names: CodeModeNames, lists: MountLists) -> None:
        self._names = names
        self._lists = lists
        self._tools = definitions(names)
        self._own = {tool["name"]: dump(tool) for tool in self._tools}
        self._catalogues = SingleFlight[bytes, MountCatalogue](LastUsed(KEPT))

    async def answer(self, ask: ClientRequest, session: MountSession | None) -> bytes | ClientRequest:
        """The response to a request for the list or to a call, or the call that it stands for.

        Raises ToolUnknown for a tool that is called by its name.
        """
        envelope, is_modern = ask.envelope, ask.sender.era is MODERN
        assert isinstance(envelope, Envelope)
        if envelope.method == TOOLS.method:
            return own_page(envelope, self._tools, modern=is_modern)
        if envelope.name not in self._own:
            raise ToolUnknown(self._names.hint)
        try:
            if envelope.name == self._names.search:
                return await self._search(ask, session, envelope)
            if envelope.name == self._names.schema:
                return await self._describe(ask, session, envelope)
            return await self._unfolded(ask, session, envelope)
        except UnusableCall as error:
            return tool_result(envelope.id_bytes, str(error), None, modern=is_modern, is_error=True)

    async def _search(self, ask: ClientRequest, session: MountSession | None, envelope: Envelope) -> bytes:
        query = search_query(envelope)
        held = await self._lists.now(TOOLS, ask, session)
        _, index = await self._catalogue(held.found)
        text, data = search_answer(*await in_turns(index.search(query.words, query.limit)), self._names)
        response = tool_result(envelope.id_bytes, text, data, modern=ask.sender.era is MODERN)
        missing = [Insert(("result", "_meta"), dump({MISSING: held.missing}))] if held.missing else []
        return edit(response, missing)

    async def _describe(self, ask: ClientRequest, session: MountSession | None, envelope: Envelope) -> bytes:
        name = described_name(envelope, self._names)
        definition = self._own.get(name) or await self._definition(ask, session, name)
        return await described(envelope, definition, self._names, modern=ask.sender.era is MODERN)

    async def _unfolded(
        self, ask: ClientRequest, session: MountSession | None, envelope: Envelope
    ) -> ClientRequest:
        body = unfold(envelope, self._names)
        inner = read_envelope(body)
        assert isinstance(inner, Envelope) and inner.name is not None, "the call has a name"
        if inner.name in self._own:
            raise UnusableCall(f"{shown(inner.name, 100)} is called by its own name.")
        inner.trace = envelope.trace
        fields = [
            each for each in forwardable(ask.headers, drop=_OF_CALL) if not each[0].lower().startswith(PREFIX)
        ]
        if ask.sender.era is MODERN:
            fields += mirrors_of(inner, await self._definition(ask, session, inner.name))
        return ask.with_message(inner, body, fields)

    async def _definition(self, ask: ClientRequest, session: MountSession | None, name: str) -> bytes | None:
        held = await self._lists.now(TOOLS, ask, session)
        return (await self._catalogue(held.found))[0].get(name)

    async def _catalogue(self, found: MergedList) -> MountCatalogue:
        return await self._catalogues.get(found.digest, lambda: _read(found))


async def _read(found: MergedList) -> MountCatalogue:
    tools: dict[str, bytes] = {}
    for page in found.pages:
        tools |= await in_turns(stored_entries(page, TOOLS))
    return tools, await in_turns(index_of(tools))
