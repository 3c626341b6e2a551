"""Scripts in processes of their own: what they are given, what becomes of what they write, and how they end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from structlog import get_logger
from structlog.testing import capture_logs

from adapter.hosted.scripts.processes import ProcessOutput
from adapter.hosted.scripts.references import ScriptFailed, ScriptInvalid, ScriptTimedOut
from adapter.hosted.scripts.scripts import CodeLoader
from adapter.hosted.scripts.subprocesses import Confinement, Starts
from adapter.pipeline.call import Code
from adapter.rules.results.outcomes import Result, ToolUserError, error
from tests.hosted.serving import LOG
from tests.waiting import until

Load = Callable[..., Code]
PAYLOAD = {"inputs": {"city": "Köln"}, "tool": "weather"}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """``load(source, "script.py#fn", memory_bytes=…)``: a script of that source in a process of its own."""

    def write(source: str, reference: str = "script.py", **confined: Any) -> Code:
        path = tmp_path / reference.partition("#")[0]
        path.write_text(source)
        path.chmod(0o755)
        return CodeLoader(tmp_path, LOG, Confinement(**confined)).script(reference, "subprocess")

    return write


async def called(script: Code, payload: Any = PAYLOAD, timeout: float | None = 10.0) -> Any:
    return await script.call(payload, {"user": "ada", "signal": object()}, timeout)


async def gone(pid: int) -> bool:
    """Whether that process ends soon."""
    for _ in range(500):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":  # dead, and whoever adopted it has not looked yet
            return True
        await asyncio.sleep(0.01)
    return False


async def written(path: Path) -> int:
    """The number that a process writes to a file, once it has."""
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


# --- in and out ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reference"),
    [
        ("import json, sys\nprint(json.dumps(json.loads(input())['inputs']))", "script.py"),
        ("def run(payload): return payload['inputs']", "script.py#run"),
        ("async def run(payload, context): print('noise'); return payload['inputs']", "script.py#run"),
        (
            "#!/bin/sh\nread line\nprintf '%s' \"$line\" | sed 's/.*\"inputs\":\\({[^}]*}\\).*/\\1/'",
            "script.sh",
        ),
    ],
)
async def test_a_line_of_json_comes_in_and_json_goes_out(load: Load, source: str, reference: str) -> None:
    """A Python program, a function of a file, whatever it prints besides, and any other program."""
    assert await called(load(source, reference)) == {"city": "Köln"}


async def test_a_called_function_gets_of_the_context_what_is_json(load: Load) -> None:
    """By item and by attribute; what cannot be sent is not there."""
    source = "def run(payload, context): return [context['user'], context.user, list(context)]"
    assert await called(load(source, "script.py#run")) == ["ada", "ada", ["user"]]


async def test_a_called_function_tells_its_progress(load: Load) -> None:
    """A generator's steps arrive as in process, before the result."""
    source = "from adapter.rules.results.outcomes import progress\n"
    source += "def run(payload):\n  yield progress(50, 'half')\n  return 'done'"
    heard: list[tuple[float, str | None]] = []

    async def tell(percent: float, message: str | None) -> None:
        heard.append((percent, message))

    assert await load(source, "script.py#run").call(PAYLOAD, {}, 10.0, tell) == "done"
    assert heard == [(50, "half")]


async def test_results_of_the_api_keep_what_they_are(load: Load) -> None:
    """A failure that a script returns is one on this side too, with its sentence and its code."""
    source = "from adapter.rules.results.outcomes import error, success\n"
    source += "def run(payload): return error('gone', 'NOT_FOUND') if payload else success({'a': 1})"
    failed = await called(load(source, "script.py#run"))
    assert isinstance(failed, Result)
    assert failed.is_error and failed.content == error("gone", "NOT_FOUND").content
    made = await called(load(source, "script.py#run"), None)
    assert (made.is_error, made.data, made.content[0]["text"]) == (False, {"a": 1}, '{\n  "a": 1\n}')


async def test_its_directory_is_where_it_runs_and_imports_from(load: Load, tmp_path: Path) -> None:
    """Files beside a script are its own, also modules called like some of ours."""
    (tmp_path / "cache.py").write_text("name = 'mine'")
    source = "import os, cache\ndef run(payload): return [cache.name, os.getcwd()]"
    assert await called(load(source, "script.py#run")) == ["mine", str(tmp_path)]


async def test_the_adapter_s_variables_stay_its_own(load: Load) -> None:
    """A script sees the environment it was given and nothing else."""
    os.environ["ADAPTER_SECRET_OF_THIS_TEST"] = "hunter2"
    source = "import os, json\nprint(json.dumps(sorted(os.environ)))"
    try:
        own = await called(load(source))
        given = await called(load(source, environment={"CITY": "Köln"}))
    finally:
        del os.environ["ADAPTER_SECRET_OF_THIS_TEST"]
    assert set(own) <= {"PATH", "LANG", "LC_CTYPE"}
    assert set(given) <= {"CITY", "LC_CTYPE"}


async def test_what_it_writes_to_standard_error_is_logged(tmp_path: Path) -> None:
    """At debug level, with the script's name; it is never part of an answer."""
    (tmp_path / "script.py").write_text("import sys\nsys.stderr.write('a trace')\nprint(1)")
    script = CodeLoader(tmp_path, get_logger()).script("script.py", "subprocess")
    with capture_logs() as logged:
        assert await called(script) == 1
    assert [(entry["log_level"], entry["script"], entry["text"]) for entry in logged] == [
        ("debug", "script.py", "a trace")
    ]


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reference", "said"),
    [
        ("print('no json')", "script.py", "is not JSON"),
        ("raise SystemExit(3)", "script.py", "ended with status 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", "script.py", "ended by signal 15"),
        ("def run(p): raise ValueError('bad\\nline')", "script.py#run", "bad"),
        ("def run(p): raise SystemExit(3)", "script.py#run", "ended with status 3"),
        ("1 / 0", "script.py#run", "division by zero"),
        ("def run(p): return object()", "script.py#run", "not JSON serializable"),
        ("import os\ndef run(p): os._exit(0)", "script.py#run", "ended without a result"),
        ("x = 1", "script.py#run", "has no attribute 'run'"),
        ("no magic", "script.bin", "ended with status"),
    ],
)
async def test_a_script_that_fails_says_why(load: Load, source: str, reference: str, said: str) -> None:
    """ScriptFailed with one line that may be told, never with what it wrote to standard error."""
    with pytest.raises(ScriptFailed, match=said):
        await called(load(source, reference))


async def test_nothing_written_is_null(load: Load) -> None:
    """A program that ends well without a word has no result."""
    assert await called(load("pass")) is None


async def test_a_sentence_for_the_caller_stays_one(load: Load) -> None:
    """ToolUserError crosses the process's border as what it is."""
    source = "from adapter.rules.results.outcomes import ToolUserError\ndef run(p): raise ToolUserError('Ask Bob.')"
    with pytest.raises(ToolUserError, match=r"^Ask Bob\.$"):
        await called(load(source, "script.py#run"))


def test_what_cannot_run_is_refused_when_it_is_loaded(load: Load, tmp_path: Path) -> None:
    """A file without the permission, and a function of what is no Python."""
    with pytest.raises(ScriptInvalid, match=r"only be called in a \.py file"):
        load("#!/bin/sh", "script.sh#run")
    (tmp_path / "script.sh").chmod(0o644)
    with pytest.raises(ScriptInvalid, match="is not executable"):
        CodeLoader(tmp_path, LOG).script("script.sh", "subprocess")


async def test_output_has_an_end(load: Load) -> None:
    """A script that writes without end is ended, and the adapter holds no more than the limit."""
    with pytest.raises(ScriptFailed, match="wrote more than 1000000 bytes"):
        await called(load("while True: print('x' * 10000)", output_bytes=1_000_000))


async def test_what_stands_within_texts_is_no_value(load: Load) -> None:
    """However often a text has the signs that stand between values, with escapes and quotes among them."""
    signs = ',{["\\'
    script = load(f"import json\nprint(json.dumps([{signs!r} * 300_000, '', 1]))")
    assert await called(script) == [signs * 300_000, "", 1]
    with pytest.raises(ScriptFailed, match="wrote more than 250000 values"):
        await called(load("import json\nprint(json.dumps(['\"'] * 300_000))"))
    with pytest.raises(ScriptFailed, match="wrote more than 250000 values"):
        await called(load("import json\nprint(json.dumps([''] * 1_500_000))"))


@pytest.mark.parametrize(
    ("source", "said", "confined"),
    [
        ("x = bytearray(512 << 20)\nprint(len(x))", "status 1", {"memory_bytes": 256 << 20}),
        ("while True: pass", "CPU time|signal 9", {"cpu_seconds": 1}),
        ("files = [open('/dev/null') for _ in range(64)]", "status 1", {"open_files": 32}),
        ("open('big', 'wb').write(bytes(10000))", "signal|status", {"file_bytes": 4096}),
    ],
)
async def test_limits_hold(load: Load, source: str, said: str, confined: dict[str, int]) -> None:
    """Memory, CPU time, open files and the size of what it writes."""
    with pytest.raises(ScriptFailed, match=said):
        await called(load(source, **confined))


# --- the end ------------------------------------------------------------------------------------------------------


async def test_what_a_script_leaves_behind_is_killed_when_it_ends(load: Load, tmp_path: Path) -> None:
    """A child that still holds the pipe does not keep the answer waiting, and ends too."""
    source = "#!/bin/sh\nsleep 600 &\necho $! > child\necho '\"done\"'"
    assert await called(load(source, "script.sh")) == "done"
    assert await gone(await written(tmp_path / "child"))


async def test_one_that_escapes_its_group_keeps_nobody_waiting(load: Load, tmp_path: Path) -> None:
    """A child in a session of its own cannot be killed with the group; the answer comes all the same."""
    source = "#!/bin/sh\nsetsid sh -c 'echo $$ > child; exec sleep 600' &\n"
    source += "while ! test -s child; do :; done\necho 1"
    assert await called(load(source, "script.sh")) == 1
    os.kill(await written(tmp_path / "child"), 9)


async def test_a_script_that_reads_nothing_harms_nobody(load: Load) -> None:
    """A large payload for a program that has already gone is dropped with it."""
    assert await called(load("#!/bin/sh\necho 1", "script.sh"), {"text": "x" * 5_000_000}) == 1


def children() -> set[str]:
    """Processes that this one has started and not yet taken leave of; other tests may have some."""
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


def exercise(script: Code, rounds: int) -> None:
    """Finished, failed, late and cancelled calls on the loop that the adapter runs on; then nothing is left."""

    async def run() -> None:
        await called(script, 0)
        gc.collect()
        descriptors = sorted(Path("/proc/self/fd").iterdir())
        tasks, before = len(asyncio.all_tasks()), children()
        for _ in range(rounds):
            late = script.call(60, None, 0.05)
            given_up = asyncio.ensure_future(script.call(60, None, None))
            asyncio.get_running_loop().call_later(0.03, given_up.cancel)
            calls = [called(script, 0), called(script, "bad"), late, given_up]
            found = await asyncio.gather(*calls, return_exceptions=True)
            kinds = [int, ScriptFailed, ScriptTimedOut, asyncio.CancelledError]
            assert [type(each) for each in found] == kinds
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
        assert sorted(Path("/proc/self/fd").iterdir()) == descriptors
        assert len(asyncio.all_tasks()) == tasks
        assert children() == before

    uvloop.run(run())


def test_many_calls_leave_no_process_and_no_descriptor(load: Load) -> None:
    """Whichever way they end, each one's process is reaped and its pipes are closed."""
    source = "#!/bin/sh\nread n\ncase $n in *bad*) exit 1;; esac\nsleep $n\necho 0"
    exercise(load(source, "script.sh"), rounds=10)


async def test_the_end_of_a_process_that_ends_by_itself_as_it_is_killed_is_known(tmp_path: Path) -> None:
    """Whoever kills it takes its status away from nobody: the loop would warn of a process that it does not know."""
    for _ in range(40):
        output = ProcessOutput(1 << 10, get_logger())
        async with output.begun(["/bin/sh", "-c", "echo up; exit 3"], tmp_path, {}):
            assert await output.line() == b"up"
        assert output.status in (3, -signal.SIGKILL)


# --- places for programs -----------------------------------------------------------------------------------------


async def test_one_begins_in_each_turn_of_the_loop() -> None:
    """Others are served between two of them."""
    starts, begun, others = Starts(), 0, 0

    async def begin() -> None:
        nonlocal begun
        async with starts.place():
            begun += 1

    running = [asyncio.ensure_future(begin()) for _ in range(20)]
    while begun < len(running):
        before = begun
        await asyncio.sleep(0)
        assert begun - before <= 1
        others += 1
    assert others >= len(running)


async def test_no_more_run_than_there_are_places() -> None:
    """Who waits for one begins when another ends, and who leaves while waiting takes none."""
    starts, going, most, end = Starts(at_once=3), 0, 0, asyncio.Event()

    async def run() -> None:
        nonlocal going, most
        async with starts.place():
            going += 1
            most = max(most, going)
            await end.wait()
            going -= 1

    running = [asyncio.ensure_future(run()) for _ in range(10)]
    await until(lambda: going >= 3)
    running[-1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.pop()
    end.set()
    await asyncio.gather(*running)
    assert (going, most) == (0, 3)
