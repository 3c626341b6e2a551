"""The pauses between starts of a process that fails to start: each is twice the one before. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

_DOUBLINGS = 32


@dataclass(slots=True)
class RestartBackoff:
    """``first`` and ``longest`` are pauses in seconds; times are seconds of any one clock.

    ``failures`` counts failed starts in a row, ``reason`` is why the last one failed.
    """

    first: float
    longest: float
    failures: int = field(default=0, init=False)
    reason: str = field(default="", init=False)
    _until: float = field(default=0.0, init=False)

    def failed(self, now: float, reason: str) -> None:
        """Note a start that failed."""
        self.failures += 1
        self.reason = reason
        pause = self.first * 2.0 ** min(self.failures - 1, _DOUBLINGS)
        self._until = now + min(self.longest, pause)

    def succeeded(self) -> None:
        """Note a start that succeeded: the next failure is the first again."""
        self.failures = 0

    def wait(self, now: float) -> float:
        """Seconds until the next start is allowed; 0 if it is now."""
        return max(0.0, self._until - now) if self.failures else 0.0
