"""Values that were used last, as long as they are neither too many nor too heavy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Weight(NamedTuple):
    """``size`` in bytes of a ``part`` that several values may share, and which counts once."""

    part: Hashable
    size: int


@dataclass(eq=False, slots=True)
class LastUsed(Generic[K, V]):
    """At most ``most`` values, whose parts weigh at most ``most_bytes``, though always the last one. Without ``weigh``
    they weigh nothing.

    ``values`` may be looked into directly, which counts as no use.
    """

    most: int
    most_bytes: int = 0
    weigh: Callable[[V], Weight] = lambda value: Weight(id(value), 0)
    _sharing: dict[Hashable, int] = field(default_factory=dict, init=False)
    values: OrderedDict[K, V] = field(default_factory=OrderedDict, init=False)
    size: int = field(default=0, init=False)

    def __repr__(self) -> str:
        return f"<LastUsed: {len(self.values)} values, {self.size} bytes>"

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[K]:
        return iter(self.values)

    def get(self, key: K) -> V | None:
        """The value, which has been used by that."""
        value = self.values.get(key)
        if value is not None:
            self.values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep the value in place of another of that key, and let go of what was not used for longest."""
        self.drop(key)
        part, size = self.weigh(value)
        sharers = self._sharing.get(part, 0)
        self._sharing[part] = sharers + 1
        if not sharers:
            self.size += size
        self.values[key] = value
        while len(self.values) > 1 and (len(self.values) > self.most or self.size > self.most_bytes):
            self.drop(next(iter(self.values)))

    def drop(self, key: K) -> None:
        """Let go of a value, if there is one."""
        value = self.values.pop(key, None)
        if value is None:
            return
        part, size = self.weigh(value)
        self._sharing[part] -= 1
        if not self._sharing[part]:
            del self._sharing[part]
            self.size -= size

    def clear(self) -> None:
        """Let go of everything."""
        self.values.clear()
        self._sharing.clear()
        self.size = 0
