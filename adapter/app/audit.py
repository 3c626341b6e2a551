"""The audit log, out of its settings."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator

from structlog.typing import FilteringBoundLogger

from adapter.errors import AuditUnavailable
from adapter.files.audit_log import AuditLog
from adapter.relay.background import BackgroundTasks
from adapter.relay.call.audit_trail import AuditTerms, AuditTrail
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError


def build_trail(
    settings: Settings, background: BackgroundTasks, log: FilteringBoundLogger
) -> tuple[AuditLog, AuditTrail]:
    """The log of calls, and the trail that writes it.

    Raises SettingsError if the log cannot be written.
    """
    audit = settings.core.audit
    key = None if audit.arguments_key is None else audit.arguments_key.get_secret_value().encode()
    terms = AuditTerms(
        audit.arguments_digest,
        key,
        strict=audit.on_failure == "refuse",
        place=(("replica", (settings.core.replica.id or socket.gethostname())[:64]), ("pid", os.getpid())),
    )
    lines = AuditLog(audit.file)
    try:
        lines.require()
    except AuditUnavailable as error:
        why = error.__cause__
        sentence = f"{audit.file} cannot be written: {getattr(why, 'strerror', None) or why}"
        raise SettingsError([Problem("core.audit.file", sentence)]) from None
    return lines, AuditTrail(lines, terms, background, log)


@contextlib.contextmanager
def kept_open(lines: AuditLog) -> Iterator[None]:
    """Have SIGHUP open the file again while the block runs, where the signal would end the process."""
    loop = asyncio.get_running_loop()
    # Workers know the signal already, and an embedding application may.
    ours = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    if ours:
        with contextlib.suppress(RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGHUP, lines.reopen)
    try:
        yield
    finally:
        if ours:
            loop.remove_signal_handler(signal.SIGHUP)
