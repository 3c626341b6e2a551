"""Sightings: the rows that replicas renew while they live, and the silence of one that has gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Found = TypeVar("Found")


@dataclass(slots=True)
class Sighting(Generic[Found]):
    """A replica as this one sees it. Its row changed last at ``since``, and not in the last ``looks`` looks."""

    found: Found
    since: float
    looks: int = 0


class Sightings(Generic[Found]):
    """Replicas by their names. One whose row did not change in ``looks`` looks over at least ``lease`` seconds is
    silent. What is found of a row must differ whenever the row was written, so it holds the row's version at least.

    Times are of a clock of this process that never goes back: no time that another machine wrote counts. Only looks
    that succeeded count, so that nobody seems silent while the store is away. Where half of the lease passed without
    one, the looks before count no more: the others may have been unable to write, too.
    """

    def __init__(self, looks: int, lease: float) -> None:
        self._looks = looks
        self._lease = lease
        self._looked = float("-inf")
        self._seen: dict[str, Sighting[Found]] = {}

    def __repr__(self) -> str:
        return f"<Sightings: {len(self._seen)} replicas>"

    def __len__(self) -> int:
        return len(self._seen)

    def get(self, replica: str) -> Sighting[Found] | None:
        """A replica that is known, None for another."""
        return self._seen.get(replica)

    def all(self) -> dict[str, Sighting[Found]]:
        """The replicas by their names."""
        return dict(self._seen)

    def meet(self, replica: str, found: Found, now: float) -> Sighting[Found]:
        """Note a row that was read by itself."""
        known = self._seen.get(replica)
        if known is None or known.found != found:
            known = self._seen[replica] = Sighting(found, now)
        return known

    def forget(self, replica: str) -> None:
        """Note that a replica has no row any more."""
        self._seen.pop(replica, None)

    def look(self, rows: Mapping[str, Found], now: float) -> tuple[list[str], list[str]]:
        """Note all rows that there are. Returns the replicas that are silent, and those whose row is gone."""
        gone = [replica for replica in self._seen if replica not in rows]
        for replica in gone:
            del self._seen[replica]
        # Without a lease the looks alone decide.
        is_late = now - self._looked > self._lease / 2 > 0
        self._looked = now
        for replica, found in rows.items():
            known = self._seen.get(replica)
            # Versions begin anew where a row was deleted, so all that was found is compared.
            if known is not None and known.found == found:
                known.looks = 1 if is_late else known.looks + 1
            else:
                self._seen[replica] = Sighting(found, now)
        return [replica for replica in self._seen if self.is_silent(replica)], gone

    def is_silent(self, replica: str) -> bool:
        """Tell whether a replica was silent at the last look. One that is not known was not."""
        seen = self._seen.get(replica)
        return seen is not None and seen.looks >= self._looks and self._looked - seen.since >= self._lease
