"""Settings that are allowed and that somebody may not have meant."""

from __future__ import annotations

from collections.abc import Iterator

from adapter.settings.problems import Problem
from adapter.settings.root import Settings


def cautions(settings: Settings) -> Iterator[Problem]:
    """A sentence for each setting that does more than its name tells, as the others are."""
    if settings.core.auth.enabled:
        return
    everybody = "core.auth is off, so that all callers are one principal:"
    if settings.sessions.upstream == "principal":
        yield Problem(
            "sessions.upstream",
            f"{everybody} they share one session at each server, with its pages, logins and news",
        )
    if settings.sessions.missing_id == "principal":
        yield Problem(
            "sessions.missing_id",
            f"{everybody} whoever names no session goes on in the session of all who name none",
        )
