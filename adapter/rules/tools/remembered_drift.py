"""Drift that was met, kept until an operator accepts it, whatever later sessions start from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson

MOST = 16
"""Catalogues of one server that are remembered: those that were met first, and the last."""

MOST_SCOPES = 256
"""Scopes that are remembered by their public ids, to count none of them twice."""


class Meeting(NamedTuple):
    """A scope was shown another catalogue, ``digest``, than the ``baseline`` (digest) of its server.

    ``counts`` and ``what`` say what differs, as ``drift.counts`` and ``drift.sentence`` have it. ``at`` is Unix time,
    ``by`` the public name of the principal. ``own``: the scope itself had seen other tools before.
    """

    baseline: str
    digest: str
    counts: Mapping[str, int]
    what: str
    at: float
    scope: str
    by: str
    own: bool


@dataclass(frozen=True, slots=True)
class MetDrift:
    """One catalogue that is not the baseline: since when, by whose session first, and how many sessions met it."""

    digest: str
    counts: Mapping[str, int]
    what: str
    since: float
    by: str
    scope: str
    count: int = 1
    own: bool = False
    scopes: tuple[str, ...] = ()

    def again(self, meeting: Meeting) -> MetDrift:
        """The same after another scope met it."""
        own = self.own or meeting.own
        if meeting.scope in self.scopes:
            return replace(self, own=own)
        scopes = (*self.scopes, meeting.scope)[:MOST_SCOPES]
        return replace(self, count=self.count + 1, own=own, scopes=scopes)

    def as_data(self) -> dict[str, Any]:
        """For an operator: no session's id among it."""
        return {
            "digest": self.digest,
            "since": self.since,
            "by": self.by,
            "scope": self.scope,
            "sessions": self.count,
            "counts": dict(self.counts),
            "what": self.what,
        }


@dataclass(frozen=True, slots=True)
class RememberedDrift:
    """All drift from the catalogue ``baseline`` of one server, in the order in which it was first met.

    ``more`` is how many further catalogues there were.
    """

    baseline: str
    met: tuple[MetDrift, ...] = ()
    more: int = 0

    def with_meeting(self, meeting: Meeting) -> RememberedDrift:
        """The same with what a scope met; of another baseline nothing is kept."""
        if meeting.baseline != self.baseline:
            return RememberedDrift(meeting.baseline).with_meeting(meeting)
        for place, each in enumerate(self.met):
            if each.digest == meeting.digest:
                met = (*self.met[:place], each.again(meeting), *self.met[place + 1 :])
                return replace(self, met=met)
        new = MetDrift(
            meeting.digest,
            meeting.counts,
            meeting.what,
            meeting.at,
            meeting.by,
            meeting.scope,
            own=meeting.own,
            scopes=(meeting.scope,),
        )
        if len(self.met) < MOST:
            return replace(self, met=(*self.met, new))
        return replace(self, met=(*self.met[:-1], new), more=self.more + 1)

    def of_those_who_saw_both(self) -> RememberedDrift:
        """Without what only others met, where a server offers each of its users other tools."""
        return replace(self, met=tuple(each for each in self.met if each.own))

    @property
    def since(self) -> float:
        """When the first of it was met, in Unix seconds."""
        return self.met[0].since

    @property
    def sessions(self) -> int:
        """The number of sessions that met any of this drift; a session that met two catalogues counts twice."""
        return sum(each.count for each in self.met)

    def as_data(self) -> dict[str, Any]:
        """For an operator: no session's id among it."""
        return {
            "since": self.since,
            "by": self.met[0].by,
            "sessions": self.sessions,
            "catalogues": [each.as_data() for each in self.met],
            "more": self.more,
        }


def encode_remembered(found: RememberedDrift) -> bytes:
    """A row's value; ``decode_remembered`` gives back an equal one."""
    return orjson.dumps(found)


def decode_remembered(value: bytes) -> RememberedDrift:
    """Decode a row's value. Raises ValueError for a value of another version."""
    try:
        row = orjson.loads(value)
        met = tuple(MetDrift(**{**each, "scopes": tuple(each["scopes"])}) for each in row["met"])
        return RememberedDrift(str(row["baseline"]), met, int(row["more"]))
    except (TypeError, KeyError) as error:
        raise ValueError("not remembered drift") from error
