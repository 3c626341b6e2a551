"""Introspection of tokens that only their issuer can read (RFC 7662)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, IssuerUnavailable, Unauthorized
from adapter.oauth.issuer import IssuerTrust, Verification, refused
from adapter.oauth.upstream_credentials import basic_proof, post_form
from adapter.rules.access.token_claims import digest_of, read_object
from adapter.rules.last_used import LastUsed
from adapter.settings.auth import Introspection
from adapter.upstream.outgoing import IssuerHttp

AT_ONCE = 16
"""Requests to the endpoint at one time."""

MOST_WAITING = 256
"""Tokens that wait for one of these; of more, the callers are to come again."""

LARGEST = 64 * 1024
"""Bytes of an answer."""

REFUSAL_SECONDS = 10.0
"""Time for which a token that was refused is refused without asking; a client that sends it again is none the wiser."""

MOST_REFUSED = 10_000
"""Refused tokens that are remembered, and tokens that were good and are to be asked about in any case."""

MOST_REFUSALS = 500
"""Refusals in REFUSAL_WINDOW after which only tokens that were good before are asked about: somebody makes them up."""

REFUSAL_WINDOW = 10.0

PAUSE = 2.0
"""Seconds without a request after one that failed, so that callers do not all wait for an endpoint that is away."""


_OF_ONE_TOKEN = frozenset((400, 413, 414, 422, 431, 500))
"""Statuses of an endpoint that cannot cope with a token. That may be its own fault, but not that of other tokens."""


class UnusableAnswer(ValueError):
    """An answer that may be due to the token which was asked about."""


async def introspected(http: IssuerHttp, endpoint: Introspection, token: str) -> tuple[dict[str, Any], int]:
    """Ask the endpoint about a token: its answer, and the bytes of it.

    Raises AdapterError and ValueError, with sentences that hold neither URL nor token: UnusableAnswer where another
    token may get another answer.
    """
    prove = basic_proof(endpoint.client_id, endpoint.client_secret.get_secret_value())
    fields = {"token": token, "token_type_hint": "access_token"}
    status, answer = await post_form(http, endpoint.url, prove, fields)
    if status in (401, 403):
        raise ValueError("it refused the adapter's client_id and client_secret")
    if status != 200:
        kind = UnusableAnswer if status in _OF_ONE_TOKEN else ValueError
        raise kind(f"its answer has status {status}")
    if len(answer) > LARGEST:
        raise UnusableAnswer(f"its answer is larger than {LARGEST} bytes")
    try:
        return read_object(answer), len(answer)
    except ValueError as why:
        raise UnusableAnswer(str(why)) from None


@dataclass(eq=False)
class OpaqueTokens:
    """Checks tokens by asking the endpoint of their issuer. ``clock`` gives Unix seconds.

    All callers of one token wait for one request, and it goes on when they leave.
    """

    endpoint: Introspection
    trust: IssuerTrust
    http: IssuerHttp
    log: FilteringBoundLogger
    clock: Callable[[], float] = time.time
    _asking: dict[bytes, asyncio.Future[Verification]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._refusals = Refusals()
        self._failed = self._warned = 0.0

    def __repr__(self) -> str:
        return f"<OpaqueTokens of {self.trust.entry.issuer!r}: {len(self._asking)} asked about>"

    async def check(self, token: str) -> Verification:
        """See TokenCheck."""
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise Unauthorized("The access token has characters that no token has.")
        digest = digest_of(token)
        asking = self._asking.get(digest)
        if asking is None:
            self._admit(digest)
            asking = self._asking[digest] = asyncio.ensure_future(self._ask(token))
            asking.add_done_callback(lambda done: self._settle(digest, done))
        try:
            return await asyncio.shield(asking)
        except ValueError as why:
            raise refused(why) from None
        except IssuerUnavailable as failure:
            # Each caller raises an error of its own: what handles one may add to it.
            raise IssuerUnavailable(retry_after=failure.retry_after) from None

    def _admit(self, digest: bytes) -> None:
        """Raises IssuerUnavailable where the endpoint must not be asked now, and Unauthorized for a token that was
        refused a moment ago.
        """
        now = self.clock()
        if (why := self._refusals.reason(digest, now)) is not None:
            raise refused(ValueError(why))
        wait = max(self._refusals.pause(digest, now), self._pause(now))
        if wait <= 0 and len(self._asking) >= AT_ONCE + MOST_WAITING:
            wait = 1.0
        if wait > 0:
            raise IssuerUnavailable(retry_after=wait)

    def _pause(self, now: float) -> float:
        passed = now - self._failed
        return PAUSE - passed if 0 <= passed < PAUSE else 0.0

    def _settle(self, digest: bytes, done: asyncio.Future[Verification]) -> None:
        del self._asking[digest]
        if done.cancelled():
            return
        # Looked at here too, since all callers may have left.
        failure = done.exception()
        if failure is None:
            self._refusals.remember_good(digest)
        elif isinstance(failure, ValueError):
            self._refusals.add(digest, str(failure), self.clock())

    async def _ask(self, token: str) -> Verification:
        async with self._slots:
            # While it waited for its turn, others may have found that nobody answers.
            if (wait := self._pause(self.clock())) > 0:
                raise IssuerUnavailable(retry_after=wait)
            answer, size = await self._answer(token)
        now, longest = self.clock(), self.endpoint.cache_seconds
        verified = self.trust.introspected(answer, now, longest)
        return Verification(verified, min(verified.expires, now + longest), size)

    async def _answer(self, token: str) -> tuple[dict[str, Any], int]:
        try:
            return await introspected(self.http, self.endpoint, token)
        except UnusableAnswer as error:
            # Whoever makes up such tokens must not keep others out, so all the rest is asked about as before.
            self._refusals.count(self.clock())
            self._warn(error)
        except (AdapterError, ValueError) as error:
            self._failed = self.clock()
            self._warn(error)
        raise IssuerUnavailable(retry_after=PAUSE)

    def _warn(self, error: Exception) -> None:
        """Write what went wrong into the log, but not for each of many tokens."""
        now = self.clock()
        if not 0 <= now - self._warned < PAUSE:
            self._warned = now
            self.log.warning("a token could not be introspected", why=str(error))


class Refusals:
    """Remembers refused tokens for a while, and notices when there are more of them than people mistype."""

    def __init__(self) -> None:
        self._reasons = LastUsed[bytes, tuple[str, float]](MOST_REFUSED)
        self._good = LastUsed[bytes, bytes](MOST_REFUSED)
        self._moments: deque[float] = deque(maxlen=MOST_REFUSALS)

    def __repr__(self) -> str:
        return f"<Refusals: {len(self._reasons)} tokens>"

    def reason(self, digest: bytes, now: float) -> str | None:
        """Why this token was refused a moment ago; None: it was not."""
        why, moment = self._reasons.get(digest) or (None, 0.0)
        return why if 0 <= now - moment < REFUSAL_SECONDS else None

    def pause(self, digest: bytes, now: float) -> float:
        """Seconds until this token may be asked about; 0 for one that was good."""
        if len(self._moments) < MOST_REFUSALS or digest in self._good.values:
            return 0.0
        passed = now - self._moments[0]
        return REFUSAL_WINDOW - passed if 0 <= passed < REFUSAL_WINDOW else 0.0

    def count(self, now: float) -> None:
        """Count a token that was made up, or may have been, without remembering it."""
        self._moments.append(now)

    def add(self, digest: bytes, why: str, now: float) -> None:
        """Remember a refusal."""
        self._good.drop(digest)
        self.count(now)
        self._reasons.put(digest, (why, now))

    def remember_good(self, digest: bytes) -> None:
        """Remember that a token was good."""
        self._good.put(digest, digest)
