"""Functions out of files: what they may take, where they run, and when their file is another."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapter.hosted.scripts.inprocess import Workers
from adapter.hosted.scripts.references import Modules, ScriptFailed, ScriptInvalid, resolve
from adapter.hosted.scripts.scripts import LoadedFunction
from adapter.pipeline.call import Function

Load = Callable[..., LoadedFunction]
NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """``load(source, least, most)``: the one function of that source."""
    workers = Workers()

    def write(source: str, least: int = 1, most: int = 3) -> LoadedFunction:
        (tmp_path / "code.py").write_text(source)
        return LoadedFunction(resolve("code.py", tmp_path), workers, Modules(), least=least, most=most)

    yield write
    workers.close()


async def test_an_async_function_is_awaited_on_the_loop(load: Load) -> None:
    """It runs in the thread that called it."""
    loaded: Function = load("import threading\nasync def f(a): return a, threading.get_ident()")
    assert loaded.reference == "code.py"
    assert await loaded("x") == ("x", threading.get_ident())


async def test_any_other_function_runs_in_a_thread_under_the_callers_variables(load: Load) -> None:
    """So it may block, and still knows for whom it works."""
    loaded = load("import threading\ndef f(name): return name.get(), threading.get_ident()")
    NAME.set("ada")
    name, thread = await loaded(NAME)
    assert name == "ada"
    assert thread != threading.get_ident()


async def test_a_function_that_returns_something_to_await_is_awaited(load: Load) -> None:
    """As decorated ones often do."""
    loaded = load("async def _g(a): return a + 1\ndef f(a): return _g(a)")
    assert await loaded(1) == 2


def test_the_bare_function_is_there_for_those_who_call_it_directly(load: Load) -> None:
    """Nothing is between them."""
    assert load("def f(a): return a * 2").plain(4) == 8


@pytest.mark.parametrize(
    ("source", "parameters"),
    [
        ("def f(ctx): ...", 1),
        ("def f(ctx, args): ...", 2),
        ("async def f(ctx, args, next): ...", 3),
        ("def f(ctx, args=None): ...", 2),
        ("def f(*all): ...", 3),
        ("def f(ctx, args, next, more=1): ...", 3),
        ("class F:\n  def __call__(self, ctx): ...\ndefault = F()", 1),
    ],
)
def test_how_many_arguments_it_takes_is_known(load: Load, source: str, parameters: int) -> None:
    """By its signature, and never more than there are to give."""
    assert load(source).parameters == parameters


@pytest.mark.parametrize(
    ("source", "least", "most", "said"),
    [
        ("def f(): ...", 1, 3, "must take 1 to 3 arguments"),
        ("def f(a, b, c, d): ...", 1, 3, "must take 1 to 3 arguments"),
        ("def f(a): ...", 2, 2, "must take 2 arguments"),
        ("def a(x): ...\ndef b(x): ...", 1, 1, "has 2 public functions"),
        ("def", 1, 1, "cannot be loaded: SyntaxError"),
    ],
)
def test_a_function_that_cannot_be_called_so_is_refused(
    load: Load, source: str, least: int, most: int, said: str
) -> None:
    """At once, with a sentence for whoever configures it."""
    with pytest.raises(ScriptInvalid, match=said):
        load(source, least, most)


async def test_what_it_raises_comes_through_but_leaving_does_not_end_the_adapter(load: Load) -> None:
    """``sys.exit()`` is a failure like any other."""
    with pytest.raises(ZeroDivisionError):
        await load("def f(a): return 1 / 0")(1)
    with pytest.raises(ScriptFailed, match=r"called sys\.exit"):
        await load("import sys\nasync def f(a): sys.exit(1)")(1)


def test_functions_of_one_file_share_its_globals(tmp_path: Path) -> None:
    """A file is run once for all that is loaded from it."""
    workers, modules = Workers(), Modules()
    (tmp_path / "code.py").write_text("seen = []\ndef put(x): seen.append(x)\ndef get(x): return seen")

    def load(name: str) -> LoadedFunction:
        reference = f"code.py#{name}"
        return LoadedFunction(resolve(reference, tmp_path), workers, modules, least=1, most=1)

    load("put").plain("a")
    assert load("get").plain(None) == ["a"]
    workers.close()


def test_a_script_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    """Shared code has a file of its own."""
    (tmp_path / "prices_of_the_shop.py").write_text("LAMP = 20")
    (tmp_path / "code.py").write_text("import prices_of_the_shop\ndef get(x): return prices_of_the_shop.LAMP")
    workers = Workers()
    loaded = LoadedFunction(resolve("code.py", tmp_path), workers, Modules(), least=1, most=1)
    assert loaded.plain(None) == 20
    workers.close()
