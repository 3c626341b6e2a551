"""The load while faults happen, and the last look at everything when they are over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.faults.clients import SILENCE, Recorder, Session, Visitor
from tests.faults.history import Operation, Told, Verb
from tests.faults.topology import MOUNT, PINNED

VISITORS, SDK_CLIENTS = 6, 2

PAUSE = 0.02
"""Seconds between two requests of a client at most. The machine is to have time for restarts, too."""

RETRY = 0.1
"""Seconds after which a client that got no session asks again."""

PINNED_SHARE = 0.35
"""Sessions at the server whose changed definitions end a session."""

STEPS = 14
"""Requests in a session at most."""

KEPT = 24
"""Sessions that are left open for the last look; after that each session is ended."""

REMEMBERED = 200
"""Ended sessions that clients try to use again."""

SDK_CALLS = 8


@dataclass
class Load:
    """Clients at ``port``. ``open`` are the sessions left for the last look, ``over`` those that have ended."""

    port: int
    seed: int
    recorder: Recorder
    kept: int = KEPT
    open: list[Session] = field(default_factory=list)
    over: list[Session] = field(default_factory=list)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Clients work until the block ends; then each finishes the request that it has begun."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as clients:
            for number in range(VISITORS):
                clients.create_task(self._visit(f"v{number}", stop))
            for number in range(SDK_CLIENTS):
                clients.create_task(self._use_sdk(f"sdk{number}", stop))
            try:
                yield
            finally:
                stop.set()

    async def last_look(self) -> None:
        """Use each session that is still open, and each of its files, now that nothing fails any more."""
        self.recorder.calm = True
        visitor = Visitor("last", self.port, self.recorder, random.Random(self.seed))
        for session in self.open:
            await visitor.count(session)
            for handle in session.files:
                await visitor.consume(session, handle)
            for url in session.artifacts:
                await visitor.download(session, url)
        for session in self.over:
            await visitor.count(session)
        visitor.close()

    # --- raw clients ------------------------------------------------------------------------------------------

    async def _visit(self, name: str, stop: asyncio.Event) -> None:
        chance = random.Random(f"{self.seed} {name}")
        visitor = Visitor(name, self.port, self.recorder, chance)
        while not stop.is_set():
            session = await visitor.open(PINNED if chance.random() < PINNED_SHARE else MOUNT)
            if session is None:
                await asyncio.sleep(RETRY)
            else:
                await self._stay(visitor, session, chance, stop)
        visitor.close()

    async def _stay(
        self, visitor: Visitor, session: Session, chance: random.Random, stop: asyncio.Event
    ) -> None:
        for _ in range(chance.randint(2, STEPS)):
            if stop.is_set():
                break
            await self._step(visitor, session, chance)
            await asyncio.sleep(chance.uniform(0, PAUSE))  # load has a pace
        if session.mount == PINNED and chance.random() < 0.5 and not stop.is_set():
            await visitor.revoke(session)
            if not session.ended:
                await visitor.end(session)
        elif len(self.open) < self.kept and chance.random() < 0.3:
            self.open.append(session)
            return
        else:
            await visitor.end(session)
        self._forget(session, chance)
        await self._try(visitor, session, chance)

    async def _step(self, visitor: Visitor, session: Session, chance: random.Random) -> None:
        steps: list[Callable[[], Awaitable[Any]]] = [
            lambda: visitor.count(session),
            lambda: visitor.count(session, "stream"),
            lambda: visitor.upload(session),
            lambda: visitor.produce(session),
        ]
        if session.files:
            handle = chance.choice(list(session.files))
            steps += [lambda: visitor.consume(session, handle)] * 2
        if session.artifacts:
            url = chance.choice(list(session.artifacts))
            steps.append(lambda: visitor.download(session, url))
        if self.over:
            steps.append(lambda: self._try(visitor, chance.choice(self.over), chance))
        await chance.choice(steps)()

    async def _try(self, visitor: Visitor, session: Session, chance: random.Random) -> None:
        """Use a session that has ended, which must not succeed."""
        await visitor.count(session)
        if session.artifacts:
            await visitor.download(session, chance.choice(list(session.artifacts)))
        if session.files:
            await visitor.consume(session, chance.choice(list(session.files)))
        if chance.random() < 0.3:
            await visitor.upload(session)

    def _forget(self, session: Session, chance: random.Random) -> None:
        self.over.append(session)
        if len(self.over) > REMEMBERED:
            self.over.pop(chance.randrange(REMEMBERED))

    # --- clients of the SDK -----------------------------------------------------------------------------------

    async def _use_sdk(self, name: str, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with suppress(*SDK_FAILURES):
                await self._sdk_session(f"{name}/{number}", stop)
            await asyncio.sleep(RETRY)

    async def _sdk_session(self, name: str, stop: asyncio.Event) -> None:
        url = f"http://127.0.0.1:{self.port}{MOUNT}"
        async with (
            asyncio.timeout(SILENCE),
            httpx2.AsyncClient(timeout=SILENCE / 2) as http,
            Client(streamable_http_client(url, http_client=http), mode="legacy", cache=None) as client,
        ):
            for _ in range(SDK_CALLS):
                if stop.is_set():
                    break
                if (await self._sdk_call(client, name)).told is not Told.DONE:
                    break

    async def _sdk_call(self, client: Client, name: str) -> Operation:
        async def work(about: Operation) -> Operation:
            try:
                result = await client.call_tool("count", {"token": about.token}, SILENCE / 2)
            except SDK_FAILURES as error:
                return replace(about, told=Told.REFUSED, detail=f"{type(error).__name__}: {error}"[:100])
            said = str(getattr(result.content[0], "text", ""))
            return replace(about, told=Told.REFUSED if result.is_error else Told.DONE, said=said)

        return await self.recorder.note(self.recorder.about(Verb.COUNT, name), work)


SDK_FAILURES: tuple[type[BaseException], ...] = (Exception,)
"""The SDK has no catalogue of its own failures: those of its transport and its tasks reach its user, too."""
