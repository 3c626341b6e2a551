"""No secret reaches a log line, and lines per exchange are written in batches."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from adapter.log import CallLog, configure, get_logger, identify


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    """Other tests find the foreign loggers as they were."""
    before = {
        name: (logging.getLogger(name).handlers[:], logging.getLogger(name).propagate) for name in FOREIGN
    }
    yield
    identify()
    configure("info")
    for name, (handlers, propagate) in before.items():
        logging.getLogger(name).handlers[:] = handlers
        logging.getLogger(name).propagate = propagate


FOREIGN = ("asyncio", "aiohttp")


def only_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (line,) = capsys.readouterr().err.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_is_json_with_level_time_and_module(capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object per event on stderr."""
    configure("info", console=False)
    get_logger("edge").info("started", port=8932)
    line = only_line(capsys)
    assert (line["event"], line["level"], line["module"], line["port"]) == ("started", "info", "edge", 8932)
    assert line["timestamp"].endswith("Z")


def test_a_logger_made_before_follows_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    """The level is read when a logger first writes, so module-level loggers are safe."""
    logger = get_logger("early")
    configure("warning", console=False)
    logger.info("unheard")
    logger.warning("heard")
    assert only_line(capsys)["event"] == "heard"


@pytest.mark.parametrize("console", [True, False])
def test_exceptions_are_logged_without_secrets(capsys: pytest.CaptureFixture[str], console: bool) -> None:
    """A traceback is text like any other, on a terminal too."""
    configure("info", console=console)
    try:
        raise RuntimeError("refused Bearer s3cret")
    except RuntimeError:
        get_logger("edge").exception("failed")
    said = capsys.readouterr().err
    assert "RuntimeError" in said
    assert "s3cret" not in said


@pytest.mark.parametrize("console", [True, False])
def test_what_a_stranger_chose_is_bounded_and_valid(
    capsys: pytest.CaptureFixture[str], console: bool
) -> None:
    """A name of half a megabyte, one that no UTF-8 can say, and one that a terminal would obey are one line each."""
    configure("info", console=console)
    for name in ("a-" * 250_000, "\ud800", "\x1b[2Jgone\nevent: forged"):
        get_logger("edge").info("listed", tool=name)
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 3
    assert max(map(len, said.splitlines())) < 2048
    assert "\\ud800" in said
    assert "\x1b[2J" not in said


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_warnings_come_out_in_our_form(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """What asyncio and aiohttp warn of is a line of ours; their chatter is not."""
    configure("debug", console=False)
    logging.getLogger(f"{name}.part").info("chatter")
    logging.getLogger(f"{name}.part").warning("slow: token=%s", "s3cret")
    line = only_line(capsys)
    assert (line["event"], line["module"]) == ("slow: token=***", f"{name}.part")


class Stream(io.BytesIO):
    """Remembers how often it was flushed, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed = asyncio.Event()

    def flush(self) -> None:
        self.flushed.set()


async def test_call_lines_wait_for_the_timer() -> None:
    """Lines are buffered, and there a moment later without anybody asking."""
    stream = Stream()
    calls = CallLog(stream)
    calls.write({"method": "tools/call", "ms": 3})
    calls.write({"method": "ping"})
    assert stream.getvalue() == b""
    await asyncio.wait_for(stream.flushed.wait(), 20)
    assert stream.getvalue() == b'{"method":"tools/call","ms":3}\n{"method":"ping"}\n'


async def test_many_call_lines_do_not_wait() -> None:
    """At 64 KiB the buffer is written at once."""
    stream = Stream()
    calls = CallLog(stream)
    while not stream.flushed.is_set():
        calls.write({"text": "x" * 1000})
    assert len(stream.getvalue()) >= CallLog.FLUSH_BYTES


def test_lines_of_several_processes_name_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the log, and those of calls."""
    identify(worker=2, pid=7)
    configure("info", console=False)
    get_logger("edge").info("started")
    line = only_line(capsys)
    assert (line["event"], line["worker"], line["pid"]) == ("started", 2, 7)
    stream = Stream()
    calls = CallLog(stream)
    calls.write({"ms": 3})
    calls.close()
    assert json.loads(stream.getvalue()) == {"ms": 3, "worker": 2, "pid": 7}


def test_lines_of_several_processes_stay_whole() -> None:
    """A pipe takes 4 KiB at once; of more, another process's lines may come between."""

    class Pipe(io.BytesIO):
        def write(self, data: Any) -> int:
            assert len(data) <= 4096 and data.endswith(b"\n")
            return super().write(data)

    identify(worker=2, pid=7)
    stream = Pipe()
    calls = CallLog(stream)
    for number in range(500):
        calls.write({"number": number, "text": "x" * (number * 17 % 4300)})
    calls.close()
    assert [json.loads(line).get("number") is not None for line in stream.getvalue().splitlines()] == [
        True
    ] * 500


@pytest.mark.parametrize("name", ["a-" * 24_000, "\ud800", "\x00" * 5000], ids=str.__len__)
def test_a_call_line_is_bounded_and_never_lost(name: str) -> None:
    """Whatever a stranger calls a tool, there is one line, and the call goes on."""
    stream = Stream()
    calls = CallLog(stream)
    calls.write({"method": "tools/call", "name": name, "status": 200})
    calls.close()
    (line,) = stream.getvalue().splitlines()
    written = json.loads(line)
    assert len(line) < 8192
    assert (written["method"], written["status"]) == ("tools/call", 200)
    assert written["name"][:6] in (name[:6], "\\ud800")


def test_close_writes_what_is_left() -> None:
    """Nothing is lost at stop, also when no loop runs any more; the stream stays open."""
    stream = Stream()
    calls = CallLog(stream)
    calls.write({"n": 1})
    calls.close()
    assert (stream.getvalue(), stream.closed) == (b'{"n":1}\n', False)


def test_a_stream_that_is_gone_fails_no_call(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines are lost with a warning."""
    stream = Stream()
    calls = CallLog(stream)
    stream.close()
    calls.write({"n": 1})
    calls.close()
    assert "call log lost lines" in capsys.readouterr().err
