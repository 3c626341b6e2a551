"""The requests that are not fully answered yet, counted by session, or by principal where there is none."""

from __future__ import annotations

from adapter.errors import LimitReached
from adapter.relay.sessions.session import Session


class RequestsInFlight:
    """The requests in flight in this process. ``limit`` is how many one session may have here; None sets none."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._of_principals: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<RequestsInFlight: {len(self._of_principals)} principals without a session>"

    def enter(self, session: Session | None, principal: str, requests: int) -> None:
        """Count requests in flight until ``leave`` is called for them. Raises LimitReached.

        Modern requests have no session and count by principal.
        """
        in_flight = session.in_flight if session else self._of_principals.get(principal, 0)
        if self._limit is not None and in_flight + requests > self._limit:
            raise LimitReached(
                f"{in_flight} calls are running in this session, and sessions.max_in_flight_per_session allows "
                f"{self._limit}; wait until one ends.",
                data={
                    "limit": self._limit,
                    "setting": "sessions.max_in_flight_per_session",
                    "retry_after": 1,
                },
                retry_after=1,
            )
        if session is not None:
            session.in_flight += requests
        else:
            self._of_principals[principal] = in_flight + requests

    def leave(self, session: Session | None, principal: str, requests: int) -> None:
        """Count requests no longer that ``enter`` has counted."""
        if session is not None:
            session.in_flight -= requests
            return
        counts = self._of_principals
        counts[principal] -= requests
        if counts[principal] <= 0:
            del counts[principal]
