"""Scripts in process: how they are found, called, timed and told of, and what is left of ten thousand calls."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from adapter.hosted.scripts.inprocess import Workers
from adapter.hosted.scripts.references import ScriptFailed, ScriptInvalid, ScriptTimedOut
from adapter.hosted.scripts.scripts import CodeLoader
from adapter.pipeline.call import Code
from adapter.rules.results.outcomes import ToolUserError
from tests.hosted.serving import LOG
from tests.waiting import until

Load = Callable[[str], Code]


@pytest.fixture
def scripts(tmp_path: Path) -> Iterator[CodeLoader]:
    """A loader of what is in the test's folder."""
    loader = CodeLoader(tmp_path, LOG)
    yield loader
    loader.close()


@pytest.fixture
def load(scripts: CodeLoader, tmp_path: Path) -> Load:
    """``load(source)``: the one script of that source."""

    numbers = count()

    def write(source: str) -> Code:
        name = f"script{next(numbers)}.py"
        (tmp_path / name).write_text(source)
        return scripts.script(name)

    return write


async def called(script: Code, payload: Any = None, timeout: float | None = 5.0) -> Any:
    return await script.call(payload, {"user": "ada"}, timeout)


# --- how they are found -------------------------------------------------------------------------------------------


def test_a_path_is_absolute_or_below_the_settings(scripts: CodeLoader, tmp_path: Path) -> None:
    """H15: one of a tool's folder was made so when the folder was read."""
    tool = tmp_path / "tool"
    tool.mkdir()
    (tool / "shared.py").write_text("def default(payload): return 'tool'")
    assert scripts.script("tool/shared.py").reference == "tool/shared.py"
    assert scripts.script(str(tool / "shared.py")).reference.endswith("shared.py")
    with pytest.raises(ScriptInvalid, match=r"The script \./shared\.py does not exist"):
        scripts.script("./shared.py")


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("def helper(): ...\ndef default(payload): return 'default'", "default"),
        ("from os.path import join\ndef _own(): ...\ndef only(payload): return 'only'", "only"),
        ("class Default:\n  def __call__(self, payload): return 'object'\ndefault = Default()", "object"),
    ],
)
async def test_a_file_alone_stands_for_its_default(load: Load, source: str, answer: str) -> None:
    """``default``, or the only public function that the file defines itself."""
    assert await called(load(source)) == answer


@pytest.mark.parametrize(
    ("source", "reference", "said"),
    [
        ("def a(p): ...\ndef b(p): ...", "script.py", "has 2 public functions"),
        ("x = 1", "script.py", "has 0 public functions"),
        ("def a(p): ...", "script.py#b", "the function 'b' does not exist"),
        ("def a(): ...", "script.py", r"must take \(payload\) or \(payload, context\)"),
        ("def a(p, c, x): ...", "script.py", r"must take \(payload\) or \(payload, context\)"),
        ("1 / 0", "script.py", "cannot be loaded: ZeroDivisionError"),
        ("def", "script.py", "cannot be loaded: SyntaxError"),
        ("import sys; sys.exit(3)", "script.py", "cannot be loaded: SystemExit"),
        ("def a(p): ...", "script.py#not a name", "does not name a script"),
        ("def a(p): ...", "missing.py", "does not exist"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(
    scripts: CodeLoader, tmp_path: Path, source: str, reference: str, said: str
) -> None:
    """One sentence that names the script as the configuration does."""
    (tmp_path / "script.py").write_text(source)
    with pytest.raises(ScriptInvalid, match=said):
        scripts.script(reference)


async def test_a_script_is_read_again_within_the_same_second(tmp_path: Path) -> None:
    """No compiled code of a moment ago takes the place of what is there now."""
    path = tmp_path / "script.py"
    for number in (1, 2):
        path.write_text(f"def default(payload): return {number}")
        os.utime(path, (1, 1))
        scripts = CodeLoader(tmp_path, LOG)
        assert await called(scripts.script("script.py")) == number
        scripts.close()


# --- how they are called ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "def default(payload, context): return [payload, context['user']]",
        "async def default(payload, context): return [payload, context['user']]",
        "def default(*both): return [both[0], both[1]['user']]",
        "async def inner(p, c): return [p, c['user']]\ndef default(payload, context): return inner(payload, context)",
        "def default(payload, context):\n  yield [payload, context['user']]",
        "def default(payload, context):\n  yield 1\n  return [payload, context['user']]",
        "async def default(payload, context):\n  yield 1\n  yield [payload, context['user']]",
    ],
)
async def test_every_kind_of_function_is_called_with_payload_and_context(load: Load, source: str) -> None:
    """Sync, async, starred, returning an awaitable, and generators, whose result is their last word."""
    assert await called(load(source), {"inputs": {}}) == [{"inputs": {}}, "ada"]


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_a_generator_tells_its_progress(load: Load, kind: str) -> None:
    """In the order of the steps, before the result."""
    source = f"from adapter.rules.results.outcomes import progress\n{kind} default(payload):\n"
    source += "  yield progress(10, 'begun')\n  yield progress(90)\n  yield 'done'"
    heard: list[tuple[float, str | None]] = []

    async def tell(percent: float, message: str | None) -> None:
        heard.append((percent, message))

    assert await load(source).call(None, None, 5.0, tell) == "done"
    assert heard == [(10, "begun"), (90, None)]
    assert await called(load(source)) == "done"


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_what_a_script_raises_arrives(load: Load, kind: str) -> None:
    """As it was raised, also a TimeoutError of its own and a StopIteration; a script cannot end the adapter."""
    imported = "from adapter.rules.results.outcomes import ToolUserError"
    user = f"{imported}\n{kind} default(payload): raise ToolUserError('no')"
    with pytest.raises(ToolUserError, match="no"):
        await called(load(user))
    with pytest.raises(TimeoutError, match="its own") as own:
        await called(load(f"{kind} default(payload): raise TimeoutError('its own')"))
    assert not isinstance(own.value, ScriptTimedOut)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await called(load(f"{kind} default(payload): raise StopIteration"))
    with pytest.raises(ScriptFailed, match=r"sys\.exit"):
        await called(load(f"import sys\n{kind} default(payload): sys.exit(1)"))
    with pytest.raises(ScriptFailed, match="raised KeyboardInterrupt"):
        await called(load(f"{kind} default(payload): raise KeyboardInterrupt"))
    with pytest.raises(ScriptFailed, match="cancelled itself"):
        await called(load(f"import asyncio\n{kind} default(payload): raise asyncio.CancelledError"))


async def test_an_async_script_is_cancelled_when_its_time_is_up(load: Load) -> None:
    """ScriptTimedOut names the seconds; the script may tidy up."""
    source = "import asyncio\nasync def default(payload):\n  try: await asyncio.sleep(60)\n"
    source += "  finally: payload.append('tidied')"
    payload: list[str] = []
    with pytest.raises(ScriptTimedOut, match=r"timed out after 0\.01 s"):
        await called(load(source), payload, 0.01)
    assert payload == ["tidied"]


async def test_a_thread_that_goes_on_is_counted_until_it_ends(scripts: CodeLoader, load: Load) -> None:
    """The call answers in time; other calls are served meanwhile, by other threads."""
    script = load("def default(payload):\n  payload.wait(60)\n  return 'woke'")
    stuck = threading.Event()
    with pytest.raises(ScriptTimedOut):
        await called(script, stuck, 0.01)
    assert scripts.workers.leftover == 1
    free = threading.Event()
    free.set()
    assert await called(script, free) == "woke"
    stuck.set()
    await until(lambda: not scripts.workers.leftover)


async def test_threads_that_never_end_have_a_limit() -> None:
    """Above it new calls are refused at once, until one of the old has ended."""
    workers, stuck = Workers(most_left_over=1), threading.Event()
    call = asyncio.ensure_future(workers.run(lambda: stuck.wait(60)))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    with pytest.raises(ScriptFailed, match="are still running"):
        await workers.run(lambda: 1)
    stuck.set()
    await until(lambda: not workers.leftover)
    assert await workers.run(lambda: 1) == 1
    workers.close()


async def test_a_generator_that_was_given_up_takes_no_further_step(scripts: CodeLoader, load: Load) -> None:
    """Its thread stops at the next yield, and the generator may tidy up."""
    source = "def default(payload):\n  go, steps = payload\n  try:\n    while True:\n"
    source += "      go.wait(60)\n      steps.append(1)\n      yield 0\n  finally: steps.append('closed')"
    go, steps = threading.Event(), []  # type: tuple[threading.Event, list[object]]
    with pytest.raises(ScriptTimedOut):
        await called(load(source), (go, steps), 0.5)
    go.set()
    await until(lambda: not scripts.workers.leftover)
    assert steps == [1, "closed"]
