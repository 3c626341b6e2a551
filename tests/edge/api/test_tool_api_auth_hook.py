"""The hook around calls of the tool API: what it lets in, what it sees, and what its failures change."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from adapter.edge.api.tool_api import AuthHook, HookRefused
from tests.edge.tool_serving import serving
from tests.hosted.serving import LOG, echo, fail, hosted, tool

IDENTITY: ContextVar[str] = ContextVar("identity", default="nobody")


class Refusal(Exception):
    """Why a hook says no; nobody outside hears of it."""


@contextlib.contextmanager
def sync_hook(request: Any) -> Iterator[None]:
    """Says who calls while the call runs."""
    token = IDENTITY.set(f"{request} by {threading.current_thread() is threading.main_thread()}")
    try:
        yield
    finally:
        IDENTITY.reset(token)


@contextlib.asynccontextmanager
async def async_hook(request: Any) -> AsyncIterator[None]:
    """The same on the loop."""
    with sync_hook(request):
        yield


async def awaited_hook(request: Any) -> contextlib.AbstractAsyncContextManager[None]:
    """A function that has to be awaited for its context manager."""
    await asyncio.sleep(0)
    return async_hook(request)


async def identity() -> str:
    return IDENTITY.get()


@pytest.mark.parametrize(
    ("hook", "seen"),
    [(sync_hook, "ann by False"), (async_hook, "ann by True"), (awaited_hook, "ann by True")],
)
async def test_e12_the_call_runs_inside_the_hooks_context(hook: Callable[[Any], Any], seen: str) -> None:
    """What it sets is seen by the call and gone afterwards; what may block runs in a thread."""
    assert await AuthHook(hook, LOG).around("ann", identity) == seen
    assert IDENTITY.get() == "nobody"


@contextlib.contextmanager
def refusing(request: Any) -> Iterator[None]:
    raise Refusal("the password is hunter2")
    yield


@contextlib.asynccontextmanager
async def refusing_later(request: Any) -> AsyncIterator[None]:
    await asyncio.sleep(0)
    raise Refusal("the password is hunter2")
    yield


@contextlib.contextmanager
def leaving(request: Any) -> Iterator[None]:
    sys.exit("a hook must not end the process")
    yield


def broken(request: Any) -> Any:
    raise KeyError("defect")


@contextlib.asynccontextmanager
async def late(request: Any) -> AsyncIterator[None]:
    await asyncio.Event().wait()
    yield


@pytest.mark.parametrize("hook", [refusing, refusing_later, leaving, broken, late, lambda request: None])
async def test_e12_a_hook_that_raises_before_the_call_has_refused(hook: Callable[[Any], Any]) -> None:
    """Whatever it raises, and also when it takes too long or is no hook at all; the call never runs."""
    ran: list[str] = []

    async def act() -> None:
        ran.append("ran")

    with pytest.raises(HookRefused) as refused:
        await AuthHook(hook, LOG, patience=0.05).around("ann", act)
    assert str(refused.value) == "" and ran == []


async def test_w11_a_late_thread_is_let_out_again() -> None:
    """A sync hook that comes in after it was given up is left at once, so that it holds nothing for ever."""
    go, left = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def slow(request: Any) -> Iterator[None]:
        go.wait(5)
        try:
            yield
        finally:
            left.set()

    with pytest.raises(HookRefused):
        await AuthHook(slow, LOG, patience=0.05).around("ann", identity)
    go.set()
    assert await asyncio.to_thread(left.wait, 5)


def failing_after(kind: str) -> Callable[[Any], Any]:
    @contextlib.contextmanager
    def failing(request: Any) -> Iterator[None]:
        yield
        raise Refusal("too late")

    @contextlib.asynccontextmanager
    async def async_failing(request: Any) -> AsyncIterator[None]:
        yield
        raise Refusal("too late")

    @contextlib.asynccontextmanager
    async def endless(request: Any) -> AsyncIterator[None]:
        yield
        await asyncio.Event().wait()

    return {"sync": failing, "async": async_failing, "endless": endless}[kind]


@pytest.mark.parametrize("kind", ["sync", "async", "endless"])
async def test_w11_a_failure_after_the_call_keeps_its_result(kind: str) -> None:
    """The tool has run; nobody is told that it was refused."""
    assert await AuthHook(failing_after(kind), LOG, patience=0.1).around("ann", identity) == "nobody"


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_w11_the_hook_learns_of_what_the_call_raised(asynchronous: bool) -> None:
    """So it can roll back; swallowing it makes no success of it."""
    seen: list[str] = []

    @contextlib.contextmanager
    def swallowing(request: Any) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(str(error))

    @contextlib.asynccontextmanager
    async def async_swallowing(request: Any) -> AsyncIterator[None]:
        with swallowing(request):
            yield

    async def act() -> None:
        raise ValueError("no such city")

    with pytest.raises(ValueError, match="no such city"):
        await AuthHook(async_swallowing if asynchronous else swallowing, LOG).around("ann", act)
    assert seen == ["no such city"]


async def test_w11_a_call_that_is_given_up_leaves_the_hook() -> None:
    """Cancelled in the middle, it ends in good order."""
    began = asyncio.Event()
    left: list[bool] = []

    class Noting:
        async def __aenter__(self) -> None:
            began.set()

        async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
            left.append(kind is asyncio.CancelledError)

    async def act() -> None:
        await asyncio.Event().wait()

    running = asyncio.create_task(AuthHook(lambda request: Noting(), LOG).around("ann", act))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert left == [True]


# --- over HTTP ------------------------------------------------------------------------------------------------


def by_key(request: Any) -> Any:
    """Lets in who has the key, and sees the tool."""
    if request.headers["x-key"] != "k":
        raise Refusal("wrong key")
    return sync_hook(request.tool)


async def test_e12_only_calls_are_guarded() -> None:
    """Lists and validation are open; a call needs the key, and its refusal says nothing."""
    async with serving(hosted([tool("echo", echo), tool("fail", fail)]), hook=by_key) as api:
        assert (await api.get("/one/tools"))[0].status == 200
        assert (await api.get("/one/tools/echo"))[0].status == 200
        assert (await api.post("/tools/echo/validate"))[0].status == 200
        for fields in ({}, {"x_key": "wrong"}):
            head, body = await api.post("/tools/echo/call", b"{}", **fields)
            assert (head.status, body) == (401, {"error": "Unauthorized"})
        assert (await api.post("/tools/echo/call", b"{}", x_key="k"))[0].status == 200
        assert (await api.post("/tools/zz/call"))[0].status == 404
        assert (await api.post("/tools/echo/call", b"[]"))[0].status == 400


async def test_discovery_auth_puts_the_hook_before_lists_too() -> None:
    """Where whoever embeds the API asks for that."""
    async with serving(hosted([tool("echo", echo)]), hook=by_key, discovery_auth=True) as api:
        assert (await api.get("/one/tools"))[0].status == 401
        assert (await api.get("/one/tools", x_key="k"))[0].status == 200
        assert (await api.post("/tools/echo/validate"))[0].status == 401


async def test_a_refused_call_is_no_stream() -> None:
    """The head of a stream leaves only when the hook has let the call in."""
    async with serving(hosted([tool("echo", echo)]), hook=by_key) as api:
        head, body = await api.post("/tools/echo/call", b"{}", accept="text/event-stream")
        assert (head.status, body) == (401, {"error": "Unauthorized"})
