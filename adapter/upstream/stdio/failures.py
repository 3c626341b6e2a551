"""Failures of processes, as clients and as operators read them."""

from __future__ import annotations

from adapter.errors import AdapterError, UpstreamSilent, UpstreamUnanswered, UpstreamUnreachable
from adapter.upstream.stdio.child import ChildExit

_LAST = 5
"""Lines of standard error that are told with a failure. The log has more."""


def exited(server: str, child_exit: ChildExit, *, answered: bool) -> AdapterError:
    """The failure of what was under way when a process ended. ``answered``: it had answered something before."""
    sentence = f'Server "{server}": {child_exit.sentence}'
    failure: AdapterError
    if answered:
        failure = UpstreamUnanswered(f"{sentence} The call may have run.")
    else:
        failure = UpstreamUnreachable(f"{sentence} It had not answered anything.")
    if child_exit.error_lines:
        failure.reason = f"{sentence} Its last words: {' | '.join(child_exit.error_lines[-_LAST:])}"
    return failure


def not_started(server: str, error: AdapterError) -> AdapterError:
    """The failure of a process that the system does not start."""
    failure = UpstreamUnreachable(f'Server "{server}": {error}')
    failure.reason = error.reason
    return failure


def never_answered(server: str, seconds: float) -> AdapterError:
    """The failure of a process that is too slow to start."""
    return UpstreamSilent(
        f'Server "{server}": The process answered nothing within {seconds:g} s of its start '
        "(servers[].upstream.start_timeout_seconds)."
    )


def stopped(server: str) -> AdapterError:
    """The failure of what was under way when the adapter stopped a process."""
    return UpstreamUnanswered(
        f'Server "{server}": The process was stopped before it answered. The call may have run.'
    )


def backing_off(server: str, wait: float, reason: str) -> AdapterError:
    """The failure of a start that comes too soon after one that failed."""
    failure = UpstreamUnreachable(
        f'Server "{server}": The process failed to start and is not started again for {wait:.1f} s.',
        retry_after=wait,
    )
    failure.reason = f"{failure} The last start failed: {reason}"
    return failure
