"""Logging: structlog lines to stderr without secrets, and the cheap line per exchange.

``configure`` once at start, ``get_logger`` anywhere. Nothing of structlog's or logging's global configuration
is touched but two foreign loggers, whose warnings come out in the same form.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, BinaryIO, cast

import orjson
import structlog
from structlog.typing import BindableLogger, FilteringBoundLogger, Processor

MASK = "***"
_FOREIGN = ("asyncio", "aiohttp", "opentelemetry")
_SECRET_KEY = re.compile(
    r"token|authorization|secret|passw(or)?d|cookie|session[-_ ]?id|api[-_ ]?key|credential", re.IGNORECASE
)
_SECRET_TEXT = re.compile(
    r"""(?ix)
      (?P<scheme> \b(?:bearer|basic)\s+ ) [^\s,;"']+
    | (?P<named> \b[\w-]*(?:token|secret|passw(?:or)?d|api[-_]?key|authorization|cookie|session[-_]?id)
        ["']? \s* [=:] \s* ["']? ) (?!(?:bearer|basic)\b) [^\s,;&"']+
    | (?P<user> \b[a-z][a-z0-9+.-]*:// ) [^\s/@]+ (?=@)
    """
)


def redacted(text: str) -> str:
    """The text without bearer tokens, ``key=value`` secrets and the user part of URLs."""
    return _SECRET_TEXT.sub(lambda found: "".join(part for part in found.groups() if part) + MASK, text)


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor: masks values under telling keys, at any depth, and secrets inside text."""
    for key, value in event.items():
        event[key] = _without_secrets(key, value)
    return event


def _without_secrets(key: str, value: object) -> object:
    if _SECRET_KEY.search(key):
        return value if value is None or isinstance(value, bool) else MASK
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {inner: _without_secrets(str(inner), member) for inner, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(key, member) for member in value]
    if isinstance(value, BaseException):
        return redacted(repr(value))
    return value


def _rendered_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


Ship = Callable[[Mapping[str, object]], None]
"""Takes a line as structlog has it: ``event``, ``level`` and whatever else was said."""


class _Chain:
    """The one chain of this process: its level, and the processors that end in a line."""

    def __init__(self) -> None:
        self.ship: Ship | None = None
        self.configure("info", console=False)

    def configure(self, level: str, *, console: bool) -> None:
        self.level = logging.getLevelNamesMapping()[level.upper()]
        plain = structlog.dev.plain_traceback
        last: Processor = (
            structlog.dev.ConsoleRenderer(exception_formatter=plain) if console else _rendered_json
        )
        self.processors: list[Processor] = [
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            self._ship,
            last,
        ]

    def _ship(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Processor: hands a line on, without its secrets, to whoever ships them."""
        if self.ship is not None:
            self.ship(event)
        return event


_chain = _Chain()


class _Stderr:
    """Writes to whatever stderr is now: a test or a supervisor may have replaced it since."""

    def msg(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    debug = info = warning = error = critical = exception = log = msg


class _Foreign(logging.Handler):
    """Brings records of stdlib loggers into the chain."""

    def emit(self, record: logging.LogRecord) -> None:
        write = getattr(get_logger(record.name), record.levelname.lower(), get_logger(record.name).error)
        write(record.getMessage(), exc_info=record.exc_info)


def configure(level: str, *, console: bool | None = None) -> None:
    """Sets the least severe level that is written, and the form: text for a terminal, else JSON lines.

    A logger that has already written keeps what it had.
    """
    _chain.configure(level, console=sys.stderr.isatty() if console is None else console)
    for name in _FOREIGN:
        foreign = logging.getLogger(name)
        foreign.handlers[:] = [_Foreign(logging.WARNING)]
        foreign.propagate = False


def ship_to(ship: Ship | None) -> None:
    """Hand every line that is written to ``ship`` too, from now on; None: to nobody."""
    _chain.ship = ship


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry ``module: name``; it takes its level and form when it first writes."""
    logger: FilteringBoundLogger = structlog.wrap_logger(
        _Stderr(),
        # Called like the class it stands for, so a logger made at import still follows ``configure``.
        wrapper_class=cast(Any, _bound),
        cache_logger_on_first_use=True,
        module=name,
    )
    return logger


def _bound(logger: object, *, processors: object, context: dict[str, Any]) -> BindableLogger:
    """The real logger behind a lazy one. ``processors`` are structlog's defaults, which ours replace."""
    del processors
    # Any: the stubs type this class as a protocol without a constructor.
    make: Any = structlog.make_filtering_bound_logger(_chain.level)
    bound: BindableLogger = make(logger, processors=_chain.processors, context=context)
    return bound


class CallLog:
    """One JSON line per exchange, buffered: a write costs microseconds, the stream is touched rarely.

    Records must hold no secrets: they are not redacted, because that would cost more than the line. Without a
    running loop nothing flushes but the size limit, ``flush`` and ``close``.
    """

    FLUSH_SECONDS = 0.2
    FLUSH_BYTES = 64 * 1024

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def write(self, record: Mapping[str, object]) -> None:
        """Appends one line; values that are not JSON are written as text."""
        self._buffer += orjson.dumps(record, default=str, option=orjson.OPT_APPEND_NEWLINE)
        if len(self._buffer) >= self.FLUSH_BYTES:
            self.flush()
        elif self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(self.FLUSH_SECONDS, self.flush)
            except RuntimeError:
                self._timer = None

    def flush(self) -> None:
        """Hands what is buffered to the stream. A stream that is gone loses the lines, never a call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._buffer = self._buffer, bytearray()
        if not lines:
            return
        try:
            self._stream.write(lines)
            self._stream.flush()
        except (OSError, ValueError) as error:
            get_logger(__name__).warning("call log lost lines", error=error)

    def close(self) -> None:
        """Flushes and stops the timer; the stream stays open, it is its owner's."""
        self.flush()
