"""Code mode of a merged mount: three tools to search, to describe and to call those of all its servers."""

from __future__ import annotations

from adapter.errors import ToolUnknown
from adapter.relay.background import SingleFlight, in_turns
from adapter.relay.exchange import ClientRequest, forwardable
from adapter.relay.mounts.lists import MountLists
from adapter.relay.mounts.sessions import MountRequest
from adapter.relay.tools.catalogue_reader import Offered
from adapter.relay.tools.code_mode import KEPT, CodeModeTools, headers_of, without_mirrors
from adapter.rules.last_used import LastUsed
from adapter.rules.mounts.lists import MISSING, TOOLS, MergedList, stored_entries
from adapter.rules.results.tool_results import tool_result
from adapter.rules.text.unicode import shown
from adapter.rules.tools.code_mode import CodeModeNames, UnusableCall
from adapter.wire.envelope import dump
from adapter.wire.spans import Insert, edit


class MountCodeMode:
    """The three tools of one mount, over its ``lists``."""

    def __init__(self, names: CodeModeNames, lists: MountLists) -> None:
        self._tools = CodeModeTools(names)
        self._lists = lists
        self._offers = SingleFlight[bytes, Offered](LastUsed(KEPT))

    async def answer(self, request: MountRequest) -> bytes | ClientRequest:
        """The response to a request for the list or to a call, or the call that it stands for.

        Raises ToolUnknown for a tool that is called by its name.
        """
        envelope, names, modern = request.envelope, self._tools.names, request.is_modern
        if envelope.method == TOOLS.method:
            return self._tools.page(envelope, modern=modern)
        if envelope.name not in self._tools.own:
            raise ToolUnknown(names.hint)
        missing: dict[str, str] = {}

        async def read() -> Offered:
            held = await self._lists.now(TOOLS, request)
            missing.update(held.missing)
            found = held.found
            return await self._offers.get(found.digest, lambda: _offered(found))

        if envelope.name == names.call:
            try:
                inner = self._tools.unfolded(envelope)
                if inner.name in self._tools.own:
                    raise UnusableCall(f"{shown(inner.name or '', 100)} is called by its own name.")
            except UnusableCall as error:
                return tool_result(envelope.id_bytes, str(error), None, modern=modern, is_error=True)
            headers = without_mirrors(forwardable(request.ask.headers, drop=frozenset({"content-encoding"})))
            if modern:
                headers = headers_of(inner, (await read()).definitions.get(inner.name or ""), headers)
            return request.ask.with_message(inner, inner.body, headers)
        response = await self._tools.answer(envelope, read, modern=modern)
        if not missing or envelope.name != names.search:
            return response
        return edit(response, [Insert(("result", "_meta"), dump({MISSING: missing}))])


async def _offered(found: MergedList) -> Offered:
    tools: dict[str, bytes] = {}
    for page in found.pages:
        tools |= await in_turns(stored_entries(page, TOOLS))
    return Offered(found.digest.hex(), tools, tools.keys())
