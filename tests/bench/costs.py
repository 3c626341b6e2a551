"""What moving files was found to cost, and what of it is the least that it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

MIB = 1024 * 1024
GIB = 1024 * MIB

ONE, MANY, DOWN, LENT = "upload", "uploads at once", "download", "copy for a call"
KINDS = (ONE, MANY, DOWN, LENT)
ADAPTER, NGINX, COPY, COPY_HASH = "adapter", "nginx", "copy", "copy and hash"
LIMITS = {ONE: COPY_HASH, MANY: NGINX, DOWN: NGINX, LENT: COPY}
"""The front that does the least there is to do."""


@dataclass(frozen=True)
class Transfer:
    """``cpu`` in seconds per GiB, ``speed`` in MiB/s, ``memory``: bytes of RSS above those at rest, at the peak."""

    cpu: float
    speed: float
    memory: int | None = None


@dataclass
class FileResults:
    """By round. ``transfers``: by kind and front."""

    transfers: dict[tuple[str, str], list[Transfer]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, front: str, transfer: Transfer) -> None:
        self.transfers.setdefault((kind, front), []).append(transfer)

    def of(self, kind: str, front: str, part: Callable[[Transfer], float | None]) -> list[float]:
        """A part of each round's transfer, where it was measured."""
        values = (part(transfer) for transfer in self.transfers.get((kind, front), []))
        return [value for value in values if value is not None]

    def times_limit(self, kind: str, front: str) -> list[float]:
        """How many times as much CPU as the limit of its kind, round by round."""
        return [own.cpu / least.cpu for own, least in self._beside_limit(kind, front)]

    def speed_beside_limit(self, kind: str, front: str) -> list[float]:
        """The share of the speed of the limit of its kind, round by round."""
        return [own.speed / least.speed for own, least in self._beside_limit(kind, front)]

    def _beside_limit(self, kind: str, front: str) -> Iterator[tuple[Transfer, Transfer]]:
        own, least = (self.transfers.get((kind, name), []) for name in (front, LIMITS[kind]))
        return zip(own, least, strict=False)

    def as_json(self) -> dict[str, object]:
        """Everything that was measured, by round."""
        transfers = {
            f"{kind}, {front}": [asdict(transfer) for transfer in rounds]
            for (kind, front), rounds in self.transfers.items()
        }
        return {"transfers": transfers}
