"""A child from its start to its end: messages, its environment, and everything that it leaves behind: nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from structlog import get_logger
from structlog.testing import capture_logs

from adapter.errors import UpstreamNotStarted
from adapter.upstream.stdio.child import ChildProcess, ChildSpec
from adapter.upstream.stdio.failures import ChildExit
from adapter.upstream.stdio.supervisor import Supervisor
from tests.upstream.stdio.children import (
    ECHO,
    ENVIRONMENT,
    STUBBORN,
    Start,
    Witness,
    descriptors,
    lives,
    vanished,
)
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


async def test_messages_go_in_and_lines_come_out(start: Start) -> None:
    """Each message is one line to the child, and each line of its output one message, byte for byte."""
    owner = Witness()
    child = await start(ECHO, owner)
    assert child.is_running
    for message in (b'{"id": 1}', b'{"id":2,"x":"\xc3\xa4"}'):
        owner.outgoing.put(message)
        assert await owner.line() == message
    ended = await child.stop()
    assert (ended.status, ended.requested, owner.exits) == (0, True, [ended])
    assert not child.is_running


async def test_a_child_that_ends_is_reported_after_its_last_line(start: Start) -> None:
    """The owner gets all of its output, then the exit, once; its last words are for operators."""
    owner = Witness()
    with capture_logs() as logged:
        program = "import sys; print('a'); print('b', end=''); sys.exit('bad token=tops3cret')"
        child = await start(program, owner)
        ended = await owner.end()
    assert owner.lines == [b"a", b"b"]
    assert (ended.code, ended.signal, ended.requested) == (1, None, False)
    assert ended.error_lines == ("bad token=***",)
    assert ended.sentence == "The server's process ended with exit code 1."
    warnings = [each for each in logged if each["log_level"] == "warning"]
    assert [(each["sentence"], each["stderr"]) for each in warnings] == [(ended.sentence, ("bad token=***",))]
    assert await child.stop() == ended
    assert len(owner.exits) == 1


async def test_a_child_that_is_killed_says_by_which_signal(start: Start) -> None:
    """The name of the signal is in the sentence."""
    owner = Witness()
    child = await start(ECHO, owner)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSEGV)
    ended = await owner.end()
    assert (ended.code, ended.signal) == (None, signal.SIGSEGV)
    assert ended.sentence == "The server's process was ended by SIGSEGV."
    assert ChildExit(-63).sentence == "The server's process was ended by signal 63."


async def test_a_child_that_closes_its_input_gets_no_message(start: Start) -> None:
    """It lives on, and what it says is still read."""
    owner = Witness()
    child = await start(
        "import os, time; os.close(0); print('closed', flush=True); time.sleep(0.2); print('on', flush=True); "
        "time.sleep(600)",
        owner,
    )
    assert await owner.line() == b"closed"
    owner.outgoing.put(b"{}")
    assert await owner.line() == b"on"
    assert child.is_running
    await child.stop()


async def test_a_child_that_closes_its_output_is_stopped(start: Start) -> None:
    """Nothing can come from it any more."""
    owner = Witness()
    await start("import os, time; os.close(1); time.sleep(600)", owner, stop_grace=0.5)
    assert (await owner.end()).signal == signal.SIGTERM


async def test_a_child_that_ignores_term_is_gone_within_the_grace(start: Start) -> None:
    """So are its children, also one that left its process group and its session."""
    owner = Witness()
    child = await start(STUBBORN, owner, stop_grace=1.0)
    family = [int(pid) for pid in (await owner.line()).split()]
    assert all(map(lives, family))
    async with asyncio.timeout(8):
        ended = await child.stop()
    assert ended.signal == signal.SIGKILL
    assert await vanished(family, seconds=1)


async def test_term_comes_after_the_end_of_the_input(start: Start) -> None:
    """A child may end by itself when its input ends; if it does not it may clean up when it gets TERM."""
    owner = Witness()
    program = """
import signal, sys, time
def end(*_): print('term', file=sys.stderr, flush=True); sys.exit(7)
signal.signal(signal.SIGTERM, end)
print('up', flush=True)
sys.stdin.read(); print('end of input', file=sys.stderr, flush=True); time.sleep(600)
"""
    child = await start(program, owner, stop_grace=2.0)
    await owner.line()
    ended = await child.stop()
    assert (ended.code, ended.error_lines) == (7, ("end of input", "term"))


async def test_what_a_child_leaves_behind_ends_with_it(start: Start) -> None:
    """A child may end and leave others: they are killed, wherever they have gone."""
    owner = Witness()
    await start(STUBBORN.replace("time.sleep(600)\n", "os._exit(0)\n"), owner)
    family = [int(pid) for pid in (await owner.line()).split()]
    assert (await owner.end()).status == 0
    assert await vanished(family, seconds=1)


async def test_what_a_child_leaves_behind_may_clean_up(start: Start) -> None:
    """It gets TERM once, and a second for what it has to do."""
    owner = Witness()
    child = await start(LEAVES_ONE_THAT_CLEANS_UP, owner, stop_grace=60)
    assert await owner.line() == b"up"
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    assert (await owner.end()).signal == signal.SIGKILL
    assert owner.lines == [b"term", b"clean"]


LEAVES_ONE_THAT_CLEANS_UP = """
import subprocess, sys, time
inner = '''
import os, signal, sys, time
LINE_END = bytes([10])
def end(*_): os.write(1, b"term" + LINE_END); time.sleep(0.05); os.write(1, b"clean" + LINE_END); sys.exit()
signal.signal(signal.SIGTERM, end)
os.write(1, b"up" + LINE_END)
time.sleep(600)
'''
process = subprocess.Popen([sys.executable, '-S', '-c', inner])
time.sleep(600)
"""


async def test_stopping_twice_is_stopping_once(start: Start) -> None:
    """Whoever stops a child gets its one exit, and a caller that leaves changes nothing."""
    owner = Witness()
    child = await start(STUBBORN, owner, stop_grace=0.5)
    await owner.line()
    first, second = asyncio.ensure_future(child.stop()), asyncio.ensure_future(child.stop())
    await asyncio.sleep(0)
    first.cancel()
    assert [await second] == owner.exits


async def test_a_stopped_child_that_is_stuck_in_its_output_still_ends_by_itself(start: Start) -> None:
    """While it is stopped its output is read and forgotten, also if the owner had paused it."""
    owner = Witness()
    program = (
        "import sys; print('x' * 50 + '\\n', end='', flush=True); "
        "sys.stdout.write('y\\n' * 2**20); sys.stdout.flush(); sys.stdin.read(); sys.exit(5)"
    )
    child = await start(program, owner)
    child.pause()
    ended = await child.stop()
    assert (ended.code, owner.lines) == (5, [])


async def test_the_environment_is_the_given_one_only(start: Start) -> None:
    """No variable of the adapter is in it; the mark is the supervisor's."""
    os.environ["SECRET_OF_THE_ADAPTER"] = "x"
    try:
        owner = Witness()
        given = {"PATH": "/bin", "GIVEN": "a=b\nä"}
        await start("import os, json; print(json.dumps(dict(os.environ)))", owner, environment=given)
        seen = json.loads(await owner.line())
    finally:
        del os.environ["SECRET_OF_THE_ADAPTER"]
    assert {name: seen[name] for name in given} == given
    assert seen.keys() - given.keys() <= {"MCP_ADAPTER_SUPERVISOR", "LC_CTYPE"}


async def test_a_child_has_three_descriptors_and_a_session_of_its_own(start: Start) -> None:
    """Neither a socket nor a file of the adapter is open in it, whatever the adapter may inherit to others."""
    leak = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        owner = Witness()
        child = await start(
            "import os; fds = os.listdir('/proc/self/fd'); print(len(fds) - 1, os.getsid(0), os.getpgid(0))",
            owner,
        )
        assert await owner.line() == f"3 {child.pid} {child.pid}".encode()
    finally:
        os.close(leak)


async def test_no_signal_is_ignored_in_a_child(start: Start) -> None:
    """Programs expect the default, which neither Python nor the supervisor has."""
    owner = Witness()
    # A shell, because Python itself ignores two of them.
    await start(f"import os; os.execvp('sh', ['sh', '-c', {_status!r}])", owner)
    assert await owner.line() == b"SigBlk:\t0000000000000000"
    ignored = int((await owner.line()).split()[1], 16)
    # What the Python in between ignores, and two signals that the C library keeps for itself.
    theirs = (signal.SIGPIPE, signal.SIGXFSZ, 32, 33)
    assert ignored & ~sum(1 << (number - 1) for number in theirs) == 0


_status = "grep -E 'SigBlk|SigIgn' /proc/self/status"


async def test_the_working_directory_is_the_given_one(start: Start, tmp_path: Path) -> None:
    """Without one it is that of the adapter."""
    for cwd, expected in ((str(tmp_path), tmp_path), (None, Path.cwd())):
        owner = Witness()
        await start("import os; print(os.getcwd())", owner, cwd=cwd)
        assert Path(os.fsdecode(await owner.line())) == expected.resolve()


@pytest.mark.parametrize(
    ("argv", "cwd", "reason"),
    [
        (("no-such-command", "-y"), None, "upstream.command: 'no-such-command' was not found on PATH"),
        (
            ("npx -y x",),
            None,
            "upstream.command: 'npx -y x' was not found on PATH: write 'npx' there, and its arguments in "
            'upstream.args: ["-y", "x"].',
        ),
        (
            ("/bin/sh -c x",),
            None,
            "upstream.command: the file '/bin/sh -c x' does not exist: write '/bin/sh' there, and its",
        ),
        (("/no/such program",), None, "upstream.command: the file '/no/such program' does not exist."),
        (("./missing",), None, "upstream.command: the file './missing' does not exist."),
        (("./plain",), None, "upstream.command: './plain' is not executable"),
        (("./bare",), None, "upstream.command: './bare' is no program"),
        (("./orphan",), None, "upstream.command: './orphan' is there, but the interpreter"),
        (("true",), "no/such/folder", "upstream.cwd: the folder 'no/such/folder' does not exist."),
        (("true",), "plain", "upstream.cwd: 'plain' is not a folder."),
        (("true", "a" * 3_000_000), None, "upstream.args and upstream.env are together longer"),
        (("true", "\0"), None, "upstream.args or upstream.env has a NUL character."),
    ],
    ids=lambda value: str(value)[:30].replace("\0", "NUL"),
)
async def test_a_start_that_fails_names_the_setting(
    supervisor: Supervisor, tmp_path: Path, argv: tuple[str, ...], cwd: str | None, reason: str
) -> None:
    """The operator gets one sentence that says what to change; the client's names no path."""
    (tmp_path / "plain").write_text("text")
    for name, text in (("bare", "text"), ("orphan", "#!/no/such/interpreter\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    where = str(tmp_path / (cwd or "."))
    owner = Witness()
    await supervisor.open()
    before = descriptors()
    with pytest.raises(UpstreamNotStarted) as raised:
        await ChildProcess.start(supervisor, ChildSpec(argv, ENVIRONMENT, where), owner, get_logger())
    assert raised.value.reason.replace(f"{tmp_path}/", "").startswith(reason)
    assert "could not be started" in str(raised.value)
    assert str(tmp_path) not in str(raised.value)
    assert owner.exits == []
    assert descriptors() == before


async def test_a_start_that_is_cancelled_leaves_no_process(supervisor: Supervisor, start: Start) -> None:
    """The process is ended as soon as it is there."""
    await supervisor.open()
    owner = Witness()
    before = descriptors()
    starting = asyncio.ensure_future(start("import time; time.sleep(600)", owner))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert descriptors() == before
    await start("pass", witness := Witness())
    await witness.end()
    children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children")
    await until(lambda: not (children.read_text()))
    assert owner.exits == []
