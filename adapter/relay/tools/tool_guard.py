"""The tool guard: a call is judged by the same catalogue as the list, and the list by what its scope saw first.

An unchanged call costs two look-ups here. Only where the upstream's tools may have changed since the scope last saw
them is the list read again, once for all scopes, or in the scope's own session where that shows something else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, BadJson, CatalogueDrifted, ToolUnknown, UpstreamBroken
from adapter.relay.background import BackgroundTasks
from adapter.relay.files.artifact_resources import asked_cursor
from adapter.relay.replies import LARGE
from adapter.relay.stages import Call
from adapter.relay.tools.baselines import Baselines
from adapter.relay.tools.catalogue_reader import CatalogueReader
from adapter.relay.tools.definitions import Definitions, Offered
from adapter.relay.tools.tool_lists import Page, ToolLists
from adapter.relay.tools.verdict_cache import VerdictCache
from adapter.relay.turns import own_turn
from adapter.rules.calls.repeatable import says_repeatable
from adapter.rules.text.unicode import LONGEST_NAME, shown
from adapter.rules.tools.drift import Drift, as_data, sentence
from adapter.rules.tools.verdicts import Verdict
from adapter.wire.envelope import failure

RETRY = 30.0
"""Seconds after which tools that could not be read are asked for again, where no call depends on them."""

VARIANTS = 4096
"""Names that nobody lists, for which it is remembered whether they are refused."""

_LONGEST_TOLD = 100

Revoke = Callable[[str, str], Awaitable[None]]
"""End the session of this key, with the reason that its client is told."""


class ToolGuard:
    """The judge of one server's tools. ``hidden`` says of a name whether policy hides it, in any spelling.

    ``by_content``: policy hides tools for what they say too. ``fresh_for``: seconds after which the upstream's tools
    may have changed without a word. ``now`` is a clock that never goes back. ``definitions`` is where those that were
    read are kept, which ``seen`` and ``offered`` need.
    """

    def __init__(
        self,
        lists: ToolLists,
        hidden: Callable[[str], bool],
        baselines: Baselines,
        *,
        revoke: Revoke,
        fresh_for: float,
        now: Callable[[], float],
        background: BackgroundTasks,
        log: FilteringBoundLogger,
        by_content: bool = False,
        definitions: Definitions | None = None,
    ) -> None:
        self._server = baselines.server
        self._lists = lists
        self._hidden = hidden
        self._pinning = pinning = baselines.pinning
        self._baselines = baselines
        self._revoke = revoke
        self._now = now
        self._background = background
        self._log = log
        self._definitions = definitions
        # Where calls may be refused for what the list says, they wait until that is known.
        self._waits = pinning.mode == "block" or by_content
        self._watches = pinning.mode != "off" or by_content
        self._catalogue_reader = CatalogueReader(
            lists, fresh_for=fresh_for, now=now, background=background, definitions=definitions
        )
        self._verdicts = VerdictCache(baselines, lists, self._catalogue_reader, log)
        self._variants: OrderedDict[str, bool] = OrderedDict()
        self._viewing: set[str] = set()
        self._retry_at = float("-inf")

    def __repr__(self) -> str:
        return f"<ToolGuard of {self._server!r}: {self._pinning.mode}, {self._verdicts}>"

    @property
    def drifts(self) -> int:
        """The number of times that a scope was found to be offered other tools than it saw first."""
        return self._verdicts.drifts

    def changed(self) -> None:
        """The upstream's tools may be others now: it began anew."""
        self._catalogue_reader.changed()

    def listener(self) -> Callable[[bytes], None]:
        """See Gate."""
        return self._catalogue_reader.listener()

    def forget(self, scope_id: str) -> None:
        """The scope has ended."""
        self._verdicts.forget(scope_id)

    # --- calls ------------------------------------------------------------------------------------------------

    def passes(self, scope_id: str, name: str | None) -> bool:
        """Tell whether a call may go on without being judged: its scope saw this very tool, and nothing has changed.

        The adapter's own tools always may.
        """
        if name in self._lists.own_names:
            return True
        if not self._watches:
            return name is not None and not self._refuses(name)
        verdict = self._verdicts.standing(scope_id)
        return verdict is not None and name in verdict.allowed

    def repeatable(self, scope_id: str, name: str | None) -> bool:
        """See Gate. A tool that is not what its scope saw first promises nothing."""
        verdict = self._verdicts.standing(scope_id)
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
            raise _unknown(name)
        if not self._watches:
            return
        if not self._waits:
            # Nothing will be refused, so nobody waits for what is only to be pinned and told.
            if call.scope.id not in self._viewing and self._now() >= self._retry_at:
                self._viewing.add(call.scope.id)
                self._background.run(self._view_quietly(call.without_request()))
            return
        verdict = await self._verdicts.verdict(call)
        if verdict.hides(name):
            raise _unknown(name)
        if not verdict.bars(name):
            return
        if verdict.drift is None:
            raise _unknown(name)
        raise await self._refusal(call, verdict.drift)

    async def _view_quietly(self, call: Call) -> None:
        try:
            await self._verdicts.verdict(call)
        except AdapterError as error:
            self._retry_at = self._now() + RETRY
            self._log.info("tools could not be pinned yet", server=self._server, why=error.code)
        finally:
            self._viewing.discard(call.scope.id)

    def _refuses(self, name: str) -> bool:
        if self._lists.unread and self._lists.refuses(name):
            return True
        if len(name) > LONGEST_NAME:
            return self._hidden(name)
        known = self._variants.get(name)
        if known is None:
            known = self._variants[name] = self._hidden(name)
            if len(self._variants) > VARIANTS:
                self._variants.popitem(last=False)
        return known

    async def _refusal(self, call: Call, found: Drift) -> CatalogueDrifted:
        """The error of a call or list that drift concerns; the session ends with it where that is configured.

        Not where its successor would start from the same baseline: a file's, an operator's, the server's, or its
        principal's.
        """
        ends = self._pinning.invalidate and not self._pinning.subset and call.session is not None
        ends = ends and await self._baselines.begins_anew_with_session(call)
        if ends and call.session is not None:
            await self._revoke(call.session, sentence(found))
        advice = "Send initialize again to start from them." if ends else "An operator has to accept them."
        return CatalogueDrifted(f"{sentence(found)} {advice}", data={"drift": as_data(found)})

    # --- code mode --------------------------------------------------------------------------------------------

    async def offered(self, call: Call) -> Offered:
        """The tools that the scope of this call may use, with definitions.

        Raises as ``seen`` does, and CatalogueDrifted if the list of tools would raise it.
        """
        if self._pinning.mode == "block" and not self._pinning.subset:
            verdict = await self._verdicts.verdict(call)
            if verdict.drift is not None:
                raise await self._refusal(call, verdict.drift)
        return await self.seen(call)

    async def seen(self, call: Call) -> Offered:
        """The tools that the upstream offers now, and which of them the scope of this call may use.

        Raises UpstreamBroken if no list can be had, and what the upstream raises.
        """
        assert self._definitions is not None, "definitions are kept where they are asked for"
        verdict = await self._verdicts.verdict(call)
        digest = verdict.now.digest
        definitions = self._definitions.of(digest)
        if definitions is None:
            # Seen on a client's own list, or so long ago that other catalogues took its place.
            await self._catalogue_reader.own(call)
            definitions = self._definitions.of(digest)
        if definitions is None:
            raise UpstreamBroken("The upstream server's tools changed while they were read; try again.")
        warns = verdict.drift if self._pinning.mode == "warn" else None
        return Offered(digest, definitions, verdict.allowed, warns)

    # --- lists ------------------------------------------------------------------------------------------------

    def recognizes(self, response: bytes) -> bytes | None:
        """See Gate."""
        return self._lists.recognizes(response)

    async def ask(self, call: Call) -> bytes | None:
        """Note when the list was asked for: what comes may be older than what is known by then.

        Nothing but a list that was judged leaves, nor one that only some client would find in what the upstream says.
        """
        self._verdicts.asked(call)
        call.guarded = True
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:
        """A list as the client may see it, or why it may not see it: nobody is to wait for an answer in vain."""
        try:
            return await self._list(call, response)
        except AdapterError as error:
            return failure(error, call.envelope.id_bytes)

    async def _list(self, call: Call, response: bytes) -> bytes:
        first = not _may_name_cursor(call.request) or asked_cursor(call.request) is None
        if len(response) > LARGE:
            # Megabytes are compared and copied for each client, and many may list them at once.
            await own_turn()
        page = self._lists.known(response, first=first, modern=call.modern)
        if page is None:
            page = await self._page(call, response, first=first)
        if page.listed is None or not self._watches:
            return page.response
        try:
            verdict = await self._verdicts.verdict_on(call, page.listed, first=first)
        except AdapterError as error:
            if self._pinning.mode == "block":
                raise
            self._log.info("a list could not be judged", server=self._server, why=error.code)
            return page.response
        return await self._as_judged(call, page, verdict)

    async def _page(self, call: Call, response: bytes, *, first: bool) -> Page:
        try:
            return await self._lists.page(response, call.envelope.id_bytes, first=first, modern=call.modern)
        except BadJson as error:
            raise UpstreamBroken("The upstream server's list of tools is not valid JSON.") from error

    async def _as_judged(self, call: Call, page: Page, verdict: Verdict) -> bytes:
        if self._pinning.mode == "block" and self._pinning.subset:
            return (
                await self._lists.only(page, verdict, modern=call.modern) if verdict.drift else page.response
            )
        if verdict.drift is None or self._pinning.mode == "off":
            return page.response
        if self._pinning.mode == "warn":
            return await self._lists.warned(page, verdict, modern=call.modern)
        raise await self._refusal(call, verdict.drift)


def _unknown(name: str) -> ToolUnknown:
    return ToolUnknown(f"Unknown tool: {shown(name, _LONGEST_TOLD)}")


def _may_name_cursor(request: bytes) -> bool:
    """False only where no page but the first is asked for, as mostly; a backslash may hide the word."""
    return b"cursor" in request or b"\\" in request
