"""The tool guard: calls and lists of tools are judged by the catalogue that their scope saw first.

An unchanged call costs two look-ups here. If the upstream's tools may have changed since the scope last saw them, the
list is read again: once for all scopes, and in the scope's own session if that verdict is drift.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field
from functools import lru_cache, partial

from adapter.errors import AdapterError, CatalogueDrifted, ToolUnknown
from adapter.relay.background import in_turns, nothing, own_turn
from adapter.relay.replies import LARGE
from adapter.relay.stages import Call, asked_cursor
from adapter.relay.tools.baselines import Baselines
from adapter.relay.tools.catalogue_judge import CatalogueJudge, JudgeRuntime
from adapter.relay.tools.catalogue_reader import CatalogueReader, Offered
from adapter.relay.tools.tool_lists import UNJUDGED, FoundPage, PageWriter, Pieces, ToolLists
from adapter.rules.access.access_rules import unknown_tool
from adapter.rules.calls.rounds import says_repeatable
from adapter.rules.text.unicode import LONGEST_NAME
from adapter.rules.tools.catalogue import Verdict
from adapter.rules.tools.drift import Drift
from adapter.rules.tools.drift_report import as_data, sentence
from adapter.wire.envelope import failure, parse
from adapter.wire.piecewise import Piecewise
from adapter.wire.spans import MessagePieces

_EACH = 256

VARIANTS = 4096
"""Names of calls for which it is remembered whether policy hides them."""

Sees = Callable[[Call, str], bool]
"""Tells whether the caller of a call may see the tool of this name."""

IsForHost = Callable[[Call], Awaitable[bool]]
"""Tells whether the client of a call understands what definitions for its host hold."""

Revoke = Callable[[str, str], Awaitable[None]]
"""End the session of this key, with the reason that its client is told."""


@dataclass(eq=False, repr=False)
class ToolGuard:
    """The guard of one server's tools. ``hidden`` tells of a name whether policy hides it, in any spelling.

    ``by_content``: whether a tool may be called depends on the list, also without pins.

    ``sees`` is set where callers may see different tools: then nobody is told of drift of what he may not see.
    ``is_for_host`` is set where definitions differ between hosts.
    """

    tool_lists: ToolLists
    hidden: Callable[[str], bool]
    baselines: Baselines
    revoke: Revoke
    runtime: JudgeRuntime
    by_content: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self._pinning = pinning = self.baselines.pinning
        self._log = self.runtime.log
        # Calls wait for the list where it may be the reason to refuse them.
        self._waits = pinning.mode == "block" or self.by_content
        self._watches = pinning.mode != "off" or self.by_content
        self._cache = self.baselines.cache
        self._reader = CatalogueReader(self.tool_lists, self._cache)
        self._judge = CatalogueJudge(
            self.baselines, self.tool_lists, self._reader, self.runtime, partial(self._count, "found")
        )
        self._is_hidden = lru_cache(VARIANTS)(self.hidden)
        self.sees: Sees | None = None
        self.is_for_host: IsForHost | None = None
        self.on_drift: Callable[[str, str], None] = nothing
        """Is told of the mode of pinning and of what was done about drift."""

    def changed(self) -> None:
        """See CallGuard."""
        self._cache.changed()
        self._cache.tell()

    async def close(self) -> None:
        """See CallGuard."""
        await self._reader.close()

    def listener(self) -> Callable[[bytes], None]:
        """See CallGuard."""
        return self._cache.listener()

    # --- calls ------------------------------------------------------------------------------------------------

    def skips(self, scope_id: str, name: str | None) -> bool:
        """Tell whether a call may go on without being judged: its scope saw this very tool, and nothing has changed.

        Calls of the adapter's own tools always may.
        """
        if name in self.tool_lists.own_names:
            return True
        if not self._watches:
            return name is not None and not self._refuses(name)
        verdict = self._cache.verdict(scope_id)
        return verdict is not None and name in verdict.allowed

    def repeatable(self, scope_id: str, name: str | None) -> bool:
        """See CallGuard. The annotations of a tool that has drifted do not count."""
        verdict = self._cache.verdict(scope_id)
        if verdict is None or name is None or name not in verdict.allowed:
            return False
        if verdict.drift is not None and name in verdict.drift.unsettled:
            return False
        tool = verdict.now.tools.get(name)
        return tool is not None and says_repeatable(tool.definition)

    async def admit(self, call: Call) -> None:
        """Judge a call before anything of it goes upstream. Raises ToolUnknown, CatalogueDrifted, and what the
        upstream raises when its tools are not known and cannot be read.
        """
        name = call.envelope.name
        if name is None:
            raise ToolUnknown("tools/call requires the name of the tool in params.name.")
        if self._refuses(name):
            raise unknown_tool(name)
        if not self._watches:
            return
        if not self._waits:
            # Nothing will be refused, so no call waits until its tools are pinned.
            self._judge.note(call)
            return
        verdict = await self._judge.verdict(call)
        if verdict.hides(name):
            raise unknown_tool(name)
        if not verdict.bars(name):
            return
        drift = self._drift_for(call, verdict.drift)
        if drift is None:
            raise unknown_tool(name)
        raise await self._refusal(call, drift)

    async def lists(self, call: Call, name: str) -> bool:
        """Tell whether the upstream lists a tool of exactly this name now, or the adapter itself has it.

        Raises UpstreamBroken if no list can be had, and what the upstream raises.
        """
        if name in self.tool_lists.own_names:
            return True
        verdict = await self._judge.verdict(call)
        return name in verdict.now.tools and not verdict.hides(name)

    def _drift_for(self, call: Call, drift: Drift | None) -> Drift | None:
        """The part of the drift that the caller may be told of, None without any."""
        if drift is None or self.sees is None:
            return drift
        return drift.within(partial(self.sees, call))

    def _count(self, action: str) -> None:
        self.on_drift(self._pinning.mode, action)

    def _refuses(self, name: str) -> bool:
        if self.tool_lists.unread and self.tool_lists.refuses(name):
            return True
        return self.hidden(name) if len(name) > LONGEST_NAME else self._is_hidden(name)

    async def _refusal(self, call: Call, found: Drift) -> CatalogueDrifted:
        """The error of a call or list that drift concerns; the session ends with it where that is configured.

        It does not end if its successor would start from the same baseline: that of a file, an operator, the server
        or the principal.
        """
        ends = self._pinning.invalidate and not self._pinning.subset and call.origin.session is not None
        ends = ends and await self.baselines.begins_anew_with_session(call)
        if ends and call.origin.session is not None:
            await self.revoke(call.origin.session, sentence(found))
        self._count("session_ended" if ends else "refused")
        advice = "Send initialize again to start from them." if ends else "An operator has to accept them."
        return CatalogueDrifted(f"{sentence(found)} {advice}", data={"drift": as_data(found)})

    # --- code mode --------------------------------------------------------------------------------------------

    async def listed(self, call: Call) -> Offered:
        """The tools that the scope of this call may use, with definitions.

        Raises as ``offered`` does, and CatalogueDrifted if the list of tools would raise it.
        """
        if self._pinning.mode == "block" and not self._pinning.subset:
            drift = self._drift_for(call, (await self._judge.verdict(call)).drift)
            if drift is not None:
                raise await self._refusal(call, drift)
        return await self.offered(call)

    async def offered(self, call: Call) -> Offered:
        """The tools that the upstream offers now, and which of them the scope of this call may use.

        Raises UpstreamBroken if no list can be had, and what the upstream raises.
        """
        verdict = await self._judge.verdict(call)
        warns = verdict.drift if self._pinning.mode == "warn" else None
        allowed = verdict.allowed
        if self.sees is not None:
            allowed = await in_turns(_seen(allowed, partial(self.sees, call)))
        return Offered(verdict.now.digest, verdict.snapshot.definitions, allowed, warns)

    # --- lists ------------------------------------------------------------------------------------------------

    async def ask(self, call: Call) -> bytes | None:
        """Note the moment of the request: the answer may be older than the catalogue that is known by then.

        ``guarded``: only a list that was judged leaves, also where just some clients would find one in the answer.
        """
        self._judge.mark(call)
        call.guarded = True
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:
        """The list as the client may see it, or the error why it may not: every request gets an answer."""
        first = _asks_first_page(call)
        if len(response) > LARGE:
            # Megabytes are compared and copied for each client, and many may list them at once.
            await own_turn()
        try:
            found = await self.tool_lists.page(response, call.envelope.id_bytes, first=first)
            pieces = (response,) if found is None else await self._shown(call, found, first=first)
        except AdapterError as error:
            return failure(error, call.envelope.id_bytes)
        if len(response) > LARGE:
            await own_turn()
        return b"".join(pieces)

    async def list_again(self, call: Call, response: MessagePieces) -> Pieces | None:
        """See CallGuard."""
        first = _asks_first_page(call)
        if response.size > LARGE:
            await own_turn()
        found = self.tool_lists.known(response, first=first)
        # One that was never written was read by the adapter alone, and not looked at as an answer to a client.
        if found is None or not found[0].written or parse(found[1]) != call.envelope.id:
            return None
        try:
            return await self._shown(call, found, first=first)
        except AdapterError as error:
            return (failure(error, call.envelope.id_bytes),)

    async def _shown(self, call: Call, found: FoundPage, *, first: bool) -> Pieces:
        """The page as the client may see it. Raises CatalogueDrifted, and what judging raises where it may refuse."""
        for_host = self.is_for_host is not None and await self.is_for_host(call)
        way = UNJUDGED[for_host][call.modern]
        if self._watches:
            try:
                verdict = await self._judge.verdict_on(call, found[0], first=first)
            except AdapterError as error:
                if self._pinning.mode == "block":
                    raise
                self._log.info("a list could not be judged", server=self.baselines.server, why=error.code)
            else:
                way = await self._as_judged(call, way, verdict)
        return await self.tool_lists.written(found, way)

    async def _as_judged(self, call: Call, way: PageWriter, verdict: Verdict) -> PageWriter:
        pinning = self._pinning
        if verdict.drift is None or pinning.mode == "off":
            return way
        if pinning.mode == "warn" or pinning.subset:
            return way._replace(verdict=verdict, warns=pinning.mode == "warn")
        drift = self._drift_for(call, verdict.drift)
        if drift is None:
            return way
        raise await self._refusal(call, drift)


def _seen(names: Set[str], sees: Callable[[str], bool]) -> Piecewise[frozenset[str]]:
    found: set[str] = set()
    for place, name in enumerate(names):
        if sees(name):
            found.add(name)
        if place % _EACH == 0:
            yield None
    return frozenset(found)


def _asks_first_page(call: Call) -> bool:
    """Tell whether a list begins here. Most requests name no cursor; a backslash may hide the word."""
    request = call.request
    return (b"cursor" not in request and b"\\" not in request) or asked_cursor(request) is None
