"""The clients of a run: they open sessions, call, move files and end sessions, and note all that they are told."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from urllib.parse import urlsplit

import orjson

from tests.edge.raw import INITIALIZE, RawClient
from tests.faults.answers import REVOKED, Meaning, of_call, of_transfer
from tests.faults.history import History, Operation, Told, Verb
from tests.faults.topology import MOUNT, PINNED
from tests.faults.upstream import drawing

SILENCE = 20.0
"""Seconds in which each request must have an answer: several times the longest fault and the longest timeout."""

SIZES = (10, 3_000, 40_000, 90_000)
LONGEST_PAUSE = 0.05
"""Seconds that a tool takes at most before it answers: time for a fault."""

FORM = "multipart/form-data; boundary=b"
HELPERS = {MOUNT: "upstream_get_upload_url", PINNED: "pinned_get_upload_url"}
UPLOADS = {MOUNT: "/upload/upstream", PINNED: "/upload/pinned"}

Work = Callable[[Operation], Awaitable[Operation]]
"""Makes a request; gets the operation as far as it is known before, and returns it with what came of it."""


@dataclass
class Session:
    """A session of a client. ``files``: the uploads that were acknowledged, by handle; ``artifacts``: files of tools,
    by download URL; each with the request that stored it. ``credential``: an upload URL that may still be unused.
    """

    name: str
    mount: str
    id: str = ""
    files: dict[str, Operation] = field(default_factory=dict)
    artifacts: dict[str, Operation] = field(default_factory=dict)
    credential: str = ""
    ended: bool = False
    """An end was asked for, whether or not it was acknowledged."""


@dataclass
class Recorder:
    """The history while it grows. ``calm``: all faults are over."""

    history: History = field(default_factory=History)
    calm: bool = False
    _tokens: Iterator[int] = field(default_factory=count)

    def about(self, verb: Verb, session: str, *, pinned: bool = False) -> Operation:
        """A request that is about to be made."""
        token = f"{session}.{next(self._tokens)}"
        return Operation(
            verb, session, token, time.monotonic(), 0, Told.SILENT, pinned=pinned, calm=self.calm
        )

    async def note(self, about: Operation, work: Work) -> Operation:
        """Make a request and write down what came of it."""
        try:
            async with asyncio.timeout(SILENCE):
                seen = await work(about)
        except TimeoutError:
            seen = about
        except (OSError, EOFError) as error:  # a read that ends early is an EOFError
            seen = replace(about, told=Told.BROKEN, detail=type(error).__name__)
        seen = replace(seen, ended=time.monotonic())
        self.history.operations.append(seen)
        return seen


class Visitor:
    """A client over raw sockets, with one connection."""

    def __init__(self, name: str, port: int, recorder: Recorder, chance: random.Random) -> None:
        self.name, self._port, self._recorder, self._chance = name, port, recorder, chance
        self._numbers = count(1)
        self._connection: RawClient | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- sessions ---------------------------------------------------------------------------------------------

    async def open(self, mount: str = MOUNT) -> Session | None:
        """A new session; None if there is none."""
        session = Session(f"{self.name}/{next(self._numbers)}", mount)

        async def work(about: Operation) -> Operation:
            head, body = await (await self._client()).request("POST", INITIALIZE, mount)
            session.id = head.get("mcp-session-id") or ""
            meaning = of_call(head.status, head.get("content-type") or "", body)
            return replace(_told(about, meaning), said=session.id)

        opened = await self._note(Verb.OPEN, session, work)
        return session if opened.told is Told.DONE else None

    async def end(self, session: Session) -> Operation:
        """DELETE."""
        session.ended = True

        async def work(about: Operation) -> Operation:
            head, body = await (await self._client(session)).request("DELETE", b"", session.mount)
            return _told(about, of_transfer(head.status, body))

        return await self._note(Verb.END, session, work)

    async def revoke(self, session: Session) -> None:
        """Read the list of tools, let the upstream change a definition, and read again: that ends a pinned session."""
        if not await self._list(session):
            return
        session.ended = True
        if (await self.count(session, "change")).told is not Told.DONE:
            return

        async def work(about: Operation) -> Operation:
            meaning = await self._ask(session, "tools/list", {})
            if meaning.told is Told.REFUSED and meaning.code == REVOKED:
                return replace(about, told=Told.DONE)
            if meaning.told is Told.DONE:
                # The list was not read again yet, or another change has undone this one.
                return replace(about, told=Told.REFUSED, detail="still listed")
            return _told(about, meaning)

        await self._note(Verb.REVOKE, session, work)

    async def _list(self, session: Session) -> bool:
        async def work(about: Operation) -> Operation:
            return _told(about, await self._ask(session, "tools/list", {}))

        return (await self._note(Verb.ASK, session, work)).told is Told.DONE

    # --- calls and files --------------------------------------------------------------------------------------

    async def count(self, session: Session, tool: str = "count") -> Operation:
        """Call a tool that answers with the token of the call."""
        verb = {"count": Verb.COUNT, "stream": Verb.STREAM, "change": Verb.CHANGE}[tool]
        return await self._call(verb, session, tool, pause=round(self._chance.uniform(0, LONGEST_PAUSE), 3))

    async def upload(self, session: Session) -> Operation:
        """Upload a file, in most cases by a URL that is good for one upload."""
        content = self._chance.randbytes(self._chance.choice(SIZES))
        if not session.credential and self._chance.random() < 0.66:
            await self._ask_for_upload_url(session)
        credential = session.credential

        async def work(about: Operation) -> Operation:
            client = await self._client(None if credential else session)
            path = credential or UPLOADS[session.mount]
            head, body = await client.request("POST", _form(content), path, content_type=FORM)
            meaning = of_transfer(head.status, body)
            return replace(_told(about, meaning), file=str(meaning.result.get("upload_handle", "")))

        digest = hashlib.sha256(content).hexdigest()
        stored = await self._note(
            Verb.UPLOAD, session, work, digest=digest, size=len(content), credential=credential
        )
        # After a broken connection nobody knows whether the URL was used. It is tried again.
        if stored.told is not Told.BROKEN:
            session.credential = ""
        if stored.told is Told.DONE:
            session.files[stored.file] = stored
        return stored

    async def _ask_for_upload_url(self, session: Session) -> None:
        async def work(about: Operation) -> Operation:
            tool = {"name": HELPERS[session.mount], "arguments": {}}
            meaning = await self._ask(session, "tools/call", tool)
            if meaning.told is Told.DONE:
                session.credential = _path(meaning.result["structuredContent"]["upload_url"])
            return _told(about, meaning)

        await self._note(Verb.ASK, session, work)

    async def consume(self, session: Session, handle: str) -> Operation:
        """Let a tool read an upload."""
        size = session.files[handle].size
        return await self._call(Verb.CONSUME, session, "digest", handle, size=size, path=handle)

    async def produce(self, session: Session) -> Operation:
        """Let a tool write a file, which becomes an artifact."""
        seed, size = self._chance.randrange(1 << 30), self._chance.choice(SIZES)
        made = await self._call(
            Verb.PRODUCE, session, "write", size=size, seed=seed, filename=f"{seed}.bin", bytes=size
        )
        if made.told is Told.DONE and made.file:
            digest = hashlib.sha256(drawing(seed, size)).hexdigest()
            session.artifacts[made.file] = replace(made, digest=digest)
        return made

    async def download(self, session: Session, url: str) -> Operation:
        """Fetch an artifact."""

        async def work(about: Operation) -> Operation:
            head, body = await (await self._client()).request("GET", path=url)
            return replace(
                _told(about, of_transfer(head.status, body)), digest=hashlib.sha256(body).hexdigest()
            )

        size = session.artifacts[url].size
        return await self._note(Verb.DOWNLOAD, session, work, file=url, size=size)

    # --- requests ---------------------------------------------------------------------------------------------

    async def _call(
        self, verb: Verb, session: Session, tool: str, file: str = "", *, size: int = 0, **arguments: object
    ) -> Operation:
        async def work(about: Operation) -> Operation:
            params = {"name": tool, "arguments": {"token": about.token, **arguments}}
            return _result(about, await self._ask(session, "tools/call", params))

        return await self._note(verb, session, work, file=file, size=size)

    async def _ask(self, session: Session, method: str, params: Mapping[str, object]) -> Meaning:
        client = await self._client(session)
        # Many sessions use the same few numbers at the same time, so that a mistaken answer would fit.
        message = {"jsonrpc": "2.0", "id": self._chance.randint(1, 3), "method": method, "params": params}
        head, body = await client.request("POST", orjson.dumps(message), session.mount)
        return of_call(head.status, head.get("content-type") or "", body)

    async def _client(self, session: Session | None = None) -> RawClient:
        if self._connection is None:
            self._connection = await RawClient(self._port).__aenter__()
        self._connection.session = session.id if session is not None else None
        return self._connection

    async def _note(self, verb: Verb, session: Session, work: Work, **known: str | int) -> Operation:
        about = replace(self._recorder.about(verb, session.name, pinned=session.mount == PINNED), **known)  # type: ignore[arg-type]  # by name
        seen = await self._recorder.note(about, work)
        if seen.told not in (Told.DONE, Told.GONE):
            # The adapter closes the connection with some refusals; a new one is always right.
            self.close()
        return seen


def _told(about: Operation, meaning: Meaning) -> Operation:
    return replace(about, told=meaning.told, detail=meaning.detail)


def _result(about: Operation, meaning: Meaning) -> Operation:
    """The operation with what a tool's result says: its token, then a SHA-256 if it has read a file."""
    seen = _told(about, meaning)
    if meaning.told is not Told.DONE:
        return seen
    said, *more = str(meaning.result["content"][0]["text"]).split()
    seen = replace(seen, said=said, digest=more[0] if about.verb is Verb.CONSUME else "")
    artifact = meaning.result.get("_meta", {}).get("artifact")
    if about.verb is not Verb.PRODUCE or artifact is None:
        return seen
    return replace(seen, file=_path(artifact["download_url"]), digest=artifact["sha256"])


def _path(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _form(content: bytes) -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f.bin"\r\n\r\n'
    return head + content + b"\r\n--b--\r\n"
