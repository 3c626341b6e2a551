"""GET streams: what an upstream says outside of calls, and answers that come later than their call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from adapter.relay.answers import ANSWER_LIMIT, media_type, require_plain
from adapter.relay.calling import Calling
from adapter.relay.exchange import Answer, Ask, asking_plain, both
from adapter.relay.flows import overheard
from adapter.relay.mapping import Mapping
from adapter.relay.notices import Notices
from adapter.relay.parking import Parking
from adapter.relay.piping import piped_answer
from adapter.relay.replays import without_lists
from adapter.relay.sessions import Session
from adapter.relay.stages import Plan
from adapter.relay.streams import listening, noticing


@dataclass(slots=True)
class Listening:
    """Takes the streams that clients open to listen."""

    calling: Calling
    mapping: Mapping
    parking: Parking
    notices: Notices

    async def listen(self, ask: Ask, session: Session | None) -> Answer:
        """Open a stream, or resume one. Raises AdapterError."""
        ask.server.require_healthy(asyncio.get_running_loop().time())
        silence = ask.server.silence.request
        plan = ask.server.plan
        if session is not None and ask.last_event_id is not None and not plan.empty:
            await self.parking.load(session)
        # What stages wait for must not pass by them compressed; anything else may come as it likes.
        needed = session is not None and (plan.guards or self.parking.waits(session))
        # News of changed tools could not be heard either, but no stream is refused for that.
        heed = ask.server.listener()
        if needed or heed is not None:
            ask.headers = asking_plain(ask.headers)
        reply = await self.mapping.send(ask, session, b"", silence)
        headers = ask.server.answer_headers.to_client(reply.headers)
        stream = media_type(reply) == "text/event-stream"
        rewrite = None
        if stream and needed:
            require_plain(reply)
        if stream and session is not None and needed:
            rewrite = partial(self._heard, session, plan)
        if reply.whole is not None and rewrite is None:
            if heed is not None:
                heed(reply.whole)
            return Answer(reply.status, headers, reply.whole)
        if not stream:
            return await piped_answer(reply, headers, silence)
        ask.server.counters.streams += 1
        if rewrite is None or session is None:
            return Answer(reply.status, headers, overheard(reply, heed), release=reply.abort)
        pieces = listening(reply, rewrite, ANSWER_LIMIT, heed)
        scope = self.calling.scope_of(session, ask.principal)
        inbox = self.notices.open(scope, session.key, resumed=ask.last_event_id is not None)
        release = both(reply.abort, partial(self.notices.close, scope, session.key, inbox))
        return Answer(reply.status, headers, noticing(pieces, inbox), release=release)

    async def _heard(self, session: Session, plan: Plan, data: bytes) -> bytes:
        """The data of an event as it may leave."""
        claimed = await self.parking.claim(session, data)
        if claimed is not None:
            return claimed
        if plan.around is not None:
            data = session.guarded.withheld(data)
        return without_lists(data) if plan.refuses else data
