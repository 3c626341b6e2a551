"""The start of a script's own process. It is run by its path and needs the standard library only.

``child.py exec PARENT LIMITS PATH`` becomes the program, ``run`` runs a Python file as one, ``call … FUNCTION`` imports
it and calls the function: one line of JSON comes in, and lines of JSON go out, the last one the result or an error.
PARENT is the adapter's process id, LIMITS a JSON object of resource limits by their names in the ``resource`` module.
"""

# Python itself takes most of the time that a process takes to begin, so what one mode needs is imported there.
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1

Say = Callable[..., None]


class ScriptContext(dict[str, Any]):
    """Items that are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def main(mode: str, parent: str, limits: str, path: str, function: str = "") -> None:
    """Begin a session, limit this process and turn it into the script."""
    os.setsid()
    for name, value in json.loads(limits).items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (allowed, allowed))
    _end_with(int(parent))
    if mode == "exec":
        os.execv(path, [path])  # noqa: S606  (no shell is wanted)
    # The directory of this file holds modules whose names are the script's to use.
    sys.path[0] = os.path.dirname(path)  # noqa: PTH120  (pathlib takes as long to import as all else together)
    if mode == "run":
        import runpy

        sys.argv = [path]
        runpy.run_path(path, run_name="__main__")
    else:
        _call(path, function)


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when the adapter dies without a word; see prctl(2). Only Linux does."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # One that has died already sends no signal any more.
    if os.getppid() != parent:
        sys.exit(1)


def _call(path: str, function: str) -> None:
    from pathlib import Path

    sys.path.append(str(Path(__file__).parents[3]))
    # What the script prints must not be taken for what it returns.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)

        def say(**line: Any) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        given = json.loads(sys.stdin.readline())
        try:
            called = getattr(_imported(path), function)
            arguments = (given["payload"], ScriptContext(given["context"]))[: _accepted(called)]
            say(**_plain(_driven(called, arguments, say)))
        except Exception as error:
            _print(error)
            user = any(each.__name__ == "ToolUserError" for each in type(error).__mro__)
            say(error=str(error) if user else _sentence(error), user=user)


def _sentence(error: Exception) -> str:
    """The first line of an exception and its class, as the adapter shows exceptions of its own process."""
    name, line = type(error).__name__, (str(error).strip().splitlines() or [""])[0]
    return line if line and type(error) in (Exception, RuntimeError) else f"{line} ({name})" if line else name


def _print(error: Exception) -> None:
    import traceback

    traceback.print_exception(error)


def _imported(path: str) -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location("script", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["script"] = module
    spec.loader.exec_module(module)
    return module


def _accepted(function: Callable[..., Any]) -> int:
    import inspect

    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return 2
    return sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters)


def _driven(function: Callable[..., Any], arguments: tuple[Any, ...], say: Say) -> Any:
    import inspect

    value, last = function(*arguments), None
    if inspect.isawaitable(value) or inspect.isasyncgen(value):
        import asyncio

        return asyncio.run(_awaited(value, say))
    if not inspect.isgenerator(value):
        return value
    while True:
        try:
            last = _noted(next(value), last, say)
        except StopIteration as end:
            return last if end.value is None else end.value


async def _awaited(value: Any, say: Say) -> Any:
    import inspect

    if inspect.isawaitable(value):
        value = await value
    if not inspect.isasyncgen(value):
        return value
    last = None
    async for step in value:
        last = _noted(step, last, say)
    return last


def _noted(step: Any, last: Any, say: Say) -> Any:
    """Pass a progress on. Returns the last step that was none, which may be the result."""
    if type(step).__name__ != "Progress":
        return step
    say(progress=[step.percent, step.message])
    return last


def _plain(value: Any) -> dict[str, Any]:
    """The last line: a value as it is, or the parts of a result that was made with the adapter's own functions."""
    outcomes = sys.modules.get("adapter.rules.results.outcomes")
    if outcomes is None or not isinstance(value, outcomes.Result | outcomes.Response):
        return {"result": value}
    result = outcomes.as_result(value)
    parts = ("content", "is_error", "structured")
    members = {name: getattr(result, name) for name in parts}
    return {"outcome": members if result.data is outcomes.NOTHING else {**members, "data": result.data}}


if __name__ == "__main__":
    main(*sys.argv[1:])
