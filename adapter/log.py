"""Logging: structlog lines to stderr without secrets, and the cheap line per exchange.

``configure`` once at start, ``get_logger`` anywhere. Nothing of structlog's or logging's global configuration
is touched but two foreign loggers, whose warnings come out in the same form.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, BinaryIO, cast

import orjson
import structlog
from structlog.typing import BindableLogger, FilteringBoundLogger, Processor

from adapter.rules.text.events import writable

_FOREIGN = ("asyncio", "aiohttp", "opentelemetry")
_LONGEST_LINE = 4096


def bound(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor: the event as it may be written, bounded and without secrets; see ``writable``."""
    return writable(event)


def _for_terminal(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor: characters that a terminal would obey are shown as escapes; only a traceback has lines."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable() and key != "exception":
            event[key] = _printable(value)
        elif isinstance(value, str) and not value.isprintable():
            event[key] = "\n".join(map(_printable, value.split("\n")))
    return event


def _printable(text: str) -> str:
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def _rendered_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    return orjson.dumps(event).decode()


Ship = Callable[[Mapping[str, object]], None]
"""Takes a line as structlog has it: ``event``, ``level`` and whatever else was said."""


class _Chain:
    """The one chain of this process: its level, and the processors that end in a line."""

    def __init__(self) -> None:
        self.ship: Ship | None = None
        self.identity: dict[str, object] = {}
        self.configure("info", console=False)

    def configure(self, level: str, *, console: bool) -> None:
        self.level = logging.getLevelNamesMapping()[level.upper()]
        plain = structlog.dev.plain_traceback
        last: list[Processor] = [_rendered_json]
        if console:
            last = [_for_terminal, structlog.dev.ConsoleRenderer(exception_formatter=plain)]
        self.processors: list[Processor] = [
            *([self._identify] if self.identity else []),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            bound,
            self._ship,
            *last,
        ]

    def _identify(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Processor: says which process wrote the line."""
        event.update(self.identity)
        return event

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
    """Set the least severe level that is written, and the form: text for a terminal, else JSON lines.

    A logger that has already written keeps its level and form.
    """
    _chain.configure(level, console=sys.stderr.isatty() if console is None else console)
    for name in _FOREIGN:
        foreign = logging.getLogger(name)
        foreign.handlers[:] = [_Foreign(logging.WARNING)]
        foreign.propagate = False


def identify(**fields: object) -> None:
    """Add fields to every line of this process, for logs of several. To be called before ``configure``."""
    _chain.identity = fields


def ship_to(ship: Ship | None) -> None:
    """Hand every line that is written to ``ship`` too, from now on; None stops that."""
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
    """One JSON line per exchange, buffered: a write costs microseconds, and the stream is written rarely.

    Records must hold no secrets: redaction would cost more than the line. A stranger may choose parts of them, so a
    line that is too long or not valid UTF-8 is shortened like a line of the log. Without a running loop only the size
    limit, ``flush`` and ``close`` write the buffer.
    """

    FLUSH_SECONDS = 0.2
    FLUSH_BYTES = 64 * 1024

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def write(self, record: Mapping[str, object]) -> None:
        """Appends one line; values that are not JSON are written as text."""
        if _chain.identity:
            record = {**record, **_chain.identity}
        try:
            line = orjson.dumps(record, default=str, option=orjson.OPT_APPEND_NEWLINE)
        except orjson.JSONEncodeError:
            line = _short_line(record)
        self._buffer += line if len(line) <= _LONGEST_LINE else _short_line(record)
        if len(self._buffer) >= self.FLUSH_BYTES:
            self.flush()
        elif self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(self.FLUSH_SECONDS, self.flush)
            except RuntimeError:
                self._timer = None

    def flush(self) -> None:
        """Write the buffer to the stream. If the stream is closed, lines are lost, but no call fails."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._buffer = self._buffer, bytearray()
        if not lines:
            return
        try:
            for piece in _pieces(bytes(lines)) if _chain.identity else (lines,):
                self._stream.write(piece)
                self._stream.flush()
        except (OSError, ValueError) as error:
            get_logger(__name__).warning("call log lost lines", error=error)

    def close(self) -> None:
        """Write the buffer and stop the timer; the stream stays open for its owner."""
        self.flush()


def _pieces(lines: bytes) -> Iterator[bytes]:
    """The lines in pieces that a pipe takes as a whole each (PIPE_BUF), where several processes write to it."""
    start = 0
    while start < len(lines):
        end = lines.rfind(b"\n", start, start + _LONGEST_LINE) + 1
        # A line is longer by the fields of its process at most; it goes alone.
        end = end or lines.find(b"\n", start) + 1 or len(lines)
        yield lines[start:end]
        start = end


def _short_line(record: Mapping[str, object]) -> bytes:
    return orjson.dumps(writable(record), option=orjson.OPT_APPEND_NEWLINE)
