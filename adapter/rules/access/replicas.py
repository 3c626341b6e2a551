"""Replicas of one adapter: the row of each, its silence when it has gone, and sessions that live in one of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Generic, NamedTuple, TypeVar

import orjson

from adapter.wire.forwarding import REPLICA_ID

# --- owners -----------------------------------------------------------------------------------------------------


def is_replica_id(text: str) -> bool:
    """Tell whether a text may be the id of a replica: 1 to 64 letters, digits, dots, underscores and hyphens."""
    return re.fullmatch(REPLICA_ID, text) is not None


def owned(owner: str, token: str) -> str:
    """The id of an upstream session that lives in the replica ``owner``. ``token`` has no colon in it."""
    return f"{owner}:{token}"


def owner_of(session_id: str | None) -> str | None:
    """The replica in which an upstream session lives; None for one that names none."""
    if session_id is None:
        return None
    return session_id.rpartition(":")[0] or None


def replica_tag(replica: str) -> str:
    """A short name of a replica for clients, who are not to learn the one that operators use."""
    return hashlib.sha256(replica.encode()).hexdigest()[:8]


# --- rows -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """The row of a replica. ``address`` is the URL at which the others reach it, ``started`` is Unix time by its clock.

    ``incarnation`` is another for each process. ``challenge`` is named by requests that are forwarded to it, and
    changes each time the row is written. ``leaving``: it is about to stop, and takes no more requests.
    """

    address: str
    version: str
    started: float
    incarnation: str
    challenge: str
    leaving: bool = False


_FORMAT = 1
_TEXTS = ("address", "version", "incarnation", "challenge")


def encode_replica(record: ReplicaRecord) -> bytes:
    """The record as one JSON object."""
    return orjson.dumps({"format": _FORMAT, **asdict(record)})


def decode_replica(data: bytes) -> ReplicaRecord:
    """The record out of a row's value. Raises ValueError if this version cannot read it."""
    fields = orjson.loads(data)
    if not isinstance(fields, dict) or fields.pop("format", None) != _FORMAT:
        raise ValueError("not a replica's row")
    try:
        record = ReplicaRecord(**fields)
    except TypeError as error:
        raise ValueError("not a replica's row") from error
    if not all(isinstance(getattr(record, name), str) for name in _TEXTS) or not isinstance(
        record.started, int | float
    ):
        raise ValueError("not a replica's row")
    return record


class Found(NamedTuple):
    """A replica's row as it was read, at its version in the store."""

    record: ReplicaRecord
    version: int


# --- challenges -------------------------------------------------------------------------------------------------

MOST_NONCES = 100_000
"""Requests that may name one challenge. It is that of a few seconds."""


class Challenges:
    """The challenges that a replica accepts: the last ``most`` that it has announced, each nonce once.

    So a captured request is worth nothing to anybody: not a second time, not to another replica, and not when its
    challenge is no longer accepted. No clocks are compared.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._nonces: dict[str, set[str]] = {}

    def __repr__(self) -> str:
        return f"<Challenges: {len(self._nonces)}>"

    def announce(self, challenge: str) -> None:
        """Accept a challenge from now on, and the oldest of too many no more."""
        self._nonces.setdefault(challenge, set())
        while len(self._nonces) > self._most:
            del self._nonces[next(iter(self._nonces))]

    def refusal(self, challenge: str, nonce: str) -> str | None:
        """The reason why a request is refused, for operators; None: it is accepted, this once."""
        nonces = self._nonces.get(challenge)
        if nonces is None:
            return "it has expired"
        if nonce in nonces:
            return "it came before"
        if len(nonces) >= MOST_NONCES:
            return "too many came at once"
        nonces.add(nonce)
        return None


# --- the silence of one that has gone --------------------------------------------------------------------------


Seen = TypeVar("Seen")


@dataclass(slots=True)
class Sighting(Generic[Seen]):
    """A replica as this one sees it. Its row changed last at ``since``, and not in the last ``looks`` looks."""

    found: Seen
    since: float
    looks: int = 0


class Sightings(Generic[Seen]):
    """Replicas in ``seen``, by name. One whose row did not change in ``looks`` looks over at least ``lease`` seconds is
    silent. What is found of a row must differ whenever the row was written, so it holds the row's version at least.

    Times are of a clock of this process that never goes back: no time that another machine wrote counts. Only looks
    that succeeded count, so that nobody seems silent while the store is away. Where half of the lease passed without
    one, the looks before count no more: the others may have been unable to write, too.
    """

    def __init__(self, looks: int, lease: float) -> None:
        self._looks = looks
        self._lease = lease
        self._looked = float("-inf")
        self.seen: dict[str, Sighting[Seen]] = {}

    def __repr__(self) -> str:
        return f"<Sightings: {len(self.seen)} replicas>"

    def meet(self, replica: str, found: Seen, now: float) -> Sighting[Seen]:
        """Note a row that was read by itself."""
        known = self.seen.get(replica)
        if known is None or known.found != found:
            known = self.seen[replica] = Sighting(found, now)
        return known

    def look(self, rows: Mapping[str, Seen], now: float) -> tuple[list[str], list[str]]:
        """Note all rows that there are. Returns the replicas that are silent, and those whose row is gone."""
        gone = [replica for replica in self.seen if replica not in rows]
        for replica in gone:
            del self.seen[replica]
        # Without a lease the looks alone decide.
        is_late = now - self._looked > self._lease / 2 > 0
        self._looked = now
        for replica, found in rows.items():
            known = self.seen.get(replica)
            # Versions begin anew where a row was deleted, so all that was found is compared.
            if known is not None and known.found == found:
                known.looks = 1 if is_late else known.looks + 1
            else:
                self.seen[replica] = Sighting(found, now)
        return [replica for replica in self.seen if self.is_silent(replica)], gone

    def is_silent(self, replica: str) -> bool:
        """Tell whether a replica was silent at the last look. One that is not known was not."""
        seen = self.seen.get(replica)
        return seen is not None and seen.looks >= self._looks and self._looked - seen.since >= self._lease
